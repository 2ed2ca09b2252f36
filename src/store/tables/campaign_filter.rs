//! Selects rows by campaign: the only filter for more than one campaign, because a database may have more campaigns
//! than a statement can have values.

use diesel::backend::Backend;
use diesel::expression::{
    AppearsOnTable, Expression, SelectableExpression, ValidGrouping, is_aggregate,
};
use diesel::query_builder::{AstPass, QueryFragment, QueryId};
use diesel::serialize::ToSql;
use diesel::sql_types::{BigInt, Bool, HasSqlType};

/// Which campaigns a query reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CampaignFilter {
    All,
    One(i64),
}

impl From<Option<i64>> for CampaignFilter {
    fn from(campaign_id: Option<i64>) -> Self {
        campaign_id.map_or(Self::All, Self::One)
    }
}

impl CampaignFilter {
    /// Whether a column is one of the campaigns in table `campaign`. Indexes that begin with the column are used.
    pub(crate) fn on<C>(self, column: C) -> InCampaigns<C> {
        let campaigns = match self {
            Self::All => Selected::Existing,
            Self::One(id) => Selected::One(id),
        };
        InCampaigns { column, campaigns }
    }

    /// The same, but all campaigns include those that were removed, of which only counts are left.
    pub(crate) fn with_removed<C>(self, column: C) -> InCampaigns<C> {
        let campaigns = match self {
            Self::All => Selected::Any,
            Self::One(id) => Selected::One(id),
        };
        InCampaigns { column, campaigns }
    }
}

#[derive(Clone, Copy, Debug)]
enum Selected {
    Existing,
    Any,
    One(i64),
}

/// An expression that is true for the rows of the selected campaigns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InCampaigns<C> {
    column: C,
    campaigns: Selected,
}

impl<C: Expression> Expression for InCampaigns<C> {
    type SqlType = Bool;
}

impl<C: AppearsOnTable<T>, T> AppearsOnTable<T> for InCampaigns<C> {}

impl<C: SelectableExpression<T>, T> SelectableExpression<T> for InCampaigns<C> {}

impl<C, G> ValidGrouping<G> for InCampaigns<C> {
    type IsAggregate = is_aggregate::No;
}

impl<C> QueryId for InCampaigns<C> {
    type QueryId = ();

    // The SQL depends on the selection.
    const HAS_STATIC_QUERY_ID: bool = false;
}

impl<C, DB> QueryFragment<DB> for InCampaigns<C>
where
    C: QueryFragment<DB>,
    DB: Backend + HasSqlType<BigInt>,
    i64: ToSql<BigInt, DB>,
{
    fn walk_ast<'b>(&'b self, mut pass: AstPass<'_, 'b, DB>) -> diesel::QueryResult<()> {
        if let Selected::Any = self.campaigns {
            pass.push_sql("1 = 1");
            return Ok(());
        }
        self.column.walk_ast(pass.reborrow())?;
        match &self.campaigns {
            Selected::One(id) => {
                pass.push_sql(" = ");
                pass.push_bind_param::<BigInt, _>(id)
            }
            Selected::Existing | Selected::Any => {
                pass.push_sql(" IN (SELECT id FROM campaign)");
                Ok(())
            }
        }
    }
}

//! What the configuration says about lists: providers, prices, budgets, rules for approvals, and databases.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use smsq_import::{ImportError, ProviderRequirements};
use smsq_lifecycle::approval::ApprovalRules;
use smsq_message::budget::BudgetRules;
use smsq_message::prices::Prices;
use smsq_message::route::Route;
use smsq_message::secret::Secret;
use smsq_message::text::{Hinted, did_you_mean};
use smsq_process::jobs::Until;
use smsq_store::{Campaign, Mode, SourceConfig, SourceDatabase, SourceQuery};

/// What a configured provider requires of the messages of a sender.
pub type Requirements =
    Arc<dyn Fn(&str, Option<String>) -> Result<ProviderRequirements, Hinted> + Send + Sync>;

/// What the configuration says about imports.
#[derive(Clone)]
pub struct ListSettings {
    /// What a database is for that is created.
    pub created_for: Mode,
    pub default_provider: Option<String>,
    /// The names of all providers and routes.
    pub providers: Vec<String>,
    pub requirements: Requirements,
    pub prices: BTreeMap<String, Prices>,
    pub budgets: Arc<BudgetRules>,
    pub approval: ApprovalRules,
    /// The databases of other programs by name.
    pub sources: BTreeMap<String, SourceConfig>,
    /// How long a query may take.
    pub query_timeout: Duration,
}

impl ListSettings {
    /// A query with its time limit; `until` ends it, too.
    pub fn query<'a>(&self, text: &'a str, until: &'a Until) -> SourceQuery<'a> {
        SourceQuery { text, limit: self.query_timeout, until }
    }

    /// The database of another program that `from` names: a URL, or the name of a section `[sources.NAME]`.
    pub fn source(&self, from: &str) -> Result<SourceDatabase, ImportError> {
        if let Some(config) = self.sources.get(from) {
            return Ok(SourceDatabase::new(config)?);
        }
        if is_url(from) {
            let config = SourceConfig {
                url: Secret::new(from.to_owned()),
                password: Secret::default(),
                password_file: Secret::default(),
            };
            return Ok(SourceDatabase::new(&config)?);
        }
        let hint = did_you_mean(from, self.sources.keys().map(String::as_str)).unwrap_or_else(|| {
            "describe it as `[sources.NAME]` in smsq.toml, or use a URL such as `postgres://user@host/database`"
                .to_owned()
        });
        Err(ImportError::Invalid { message: format!("unknown source `{from}`"), hint: Some(hint) })
    }
}

/// Whether the text is the URL of a database, not the name of a source.
pub fn is_url(from: &str) -> bool {
    from.contains("://") || from.starts_with("sqlite:")
}

/// The prices of the providers that send a list.
pub struct ListPrices<'a> {
    all: &'a BTreeMap<String, Prices>,
    provider: Option<String>,
    route: Option<Arc<Route>>,
}

impl<'a> ListPrices<'a> {
    pub fn new(
        all: &'a BTreeMap<String, Prices>,
        provider: Option<&str>,
        route: Option<Arc<Route>>,
    ) -> Self {
        Self { all, provider: provider.map(str::to_owned), route }
    }

    /// The prices of messages that are added to a campaign one by one.
    pub fn of_campaign(settings: &'a ListSettings, campaign: &Campaign) -> Self {
        let default = settings.default_provider.as_ref();
        let name = campaign.provider.as_ref().or(default);
        let known = name.filter(|name| settings.providers.contains(name));
        let requirements = known.map(|name| (settings.requirements)(name, campaign.sender.clone()));
        let route = requirements.and_then(|requirements| requirements.ok()?.route);
        Self::new(&settings.prices, name.map(String::as_str), route)
    }

    /// Millionths per segment to a phone in E.164 with `+`.
    pub fn of(&self, phone: &str) -> Option<u64> {
        let home = self.route.as_ref().map(|route| {
            let (home, _) = route.choose(phone, |_, _| true)?;
            route.providers().nth(home)
        });
        let provider = home.unwrap_or(self.provider.as_deref())?;
        self.all.get(provider)?.of(phone)
    }

    /// That of all the providers; `None` without prices, or if they have several.
    pub fn currency(&self) -> Option<String> {
        let names: Vec<&str> = match &self.route {
            Some(route) => route.providers().collect(),
            None => self.provider.as_deref().into_iter().collect(),
        };
        let prices = names.into_iter().filter_map(|name| self.all.get(name));
        let mut currencies = prices.map(|prices| &prices.currency);
        let first = currencies.next()?;
        currencies.all(|currency| currency == first).then(|| first.clone())
    }
}

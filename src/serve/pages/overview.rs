//! The page of all campaigns: what is wrong, the sums, and the campaigns, found by their name and page by page.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use indicatif::HumanCount;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use smsq_message::text::ago;
use smsq_report::{CampaignSummary, Chart, DeliveryShare, StateShare, delivery, rate, states};

use super::activity::Activity;
use super::live::{ShownAlert, last_hour, now_facts, shown_alerts, unchanged};
use super::render::{View, path_of, render};
use crate::counts::Snapshot;
use crate::guard::{Query, Visitor};
use crate::state::ServerState;

/// Campaigns on a page.
const PER_PAGE: usize = 50;
/// Done and cancelled campaigns below those that are not.
const RECENTLY_OVER: usize = 5;

#[derive(Default, Deserialize)]
pub(super) struct ListQuery {
    /// A part of the names.
    #[serde(default)]
    q: String,
    /// `over`: done and cancelled campaigns.
    #[serde(default)]
    show: String,
    /// Counted from 1.
    page: Option<usize>,
    live: Option<u64>,
}

/// The campaigns that a page lists.
#[derive(Debug, PartialEq, Eq)]
struct Listed<'a> {
    rows: Vec<&'a CampaignSummary>,
    /// All that fit the query.
    count: usize,
    /// The number of this page, and of all pages.
    page: usize,
    pages: usize,
    /// Below: the newest done and cancelled ones.
    over: Vec<&'a CampaignSummary>,
    over_count: usize,
}

impl ListQuery {
    fn search(&self) -> &str {
        self.q.trim()
    }

    fn is_over(&self) -> bool {
        self.show == "over"
    }

    fn is_filtered(&self) -> bool {
        self.is_over() || !self.search().is_empty()
    }

    /// Those that need a person first, then the newest.
    fn choose<'a>(&self, campaigns: &'a [CampaignSummary]) -> Listed<'a> {
        let search = self.search().to_lowercase();
        let (over, open): (Vec<_>, Vec<_>) =
            campaigns.iter().rev().partition(|campaign| campaign.is_over());
        let mut rows: Vec<&CampaignSummary> = match (search.is_empty(), self.is_over()) {
            (_, true) => over.clone(),
            (true, false) => open,
            (false, false) => open.into_iter().chain(over.iter().copied()).collect(),
        };
        if !search.is_empty() {
            rows.retain(|row| row.campaign.to_lowercase().contains(&search));
        }
        rows.sort_by_key(|row| (row.is_over(), rank(row.state)));
        let count = rows.len();
        let pages = count.div_ceil(PER_PAGE).max(1);
        let page = self.page.unwrap_or(1).clamp(1, pages);
        let from = (page - 1) * PER_PAGE;
        let recent = if self.is_filtered() { 0 } else { RECENTLY_OVER };
        Listed {
            rows: rows.into_iter().skip(from).take(PER_PAGE).collect(),
            count,
            page,
            pages,
            over_count: over.len(),
            over: over.into_iter().take(recent).collect(),
        }
    }

    /// The address of a page of the list.
    fn path(&self, page: usize) -> String {
        let mut path = format!("/?page={page}");
        if self.is_over() {
            path += "&show=over";
        }
        if !self.search().is_empty() {
            path.push_str("&q=");
            path.extend(utf8_percent_encode(self.search(), NON_ALPHANUMERIC));
        }
        path
    }
}

fn rank(state: &str) -> u8 {
    match state {
        "stopped" => 0,
        "active" => 1,
        _ => 2,
    }
}

/// The list of campaigns on a page.
#[derive(Default, Serialize)]
struct CampaignList<'a> {
    title: &'static str,
    /// Shown if there are no rows.
    none: &'static str,
    search: &'a str,
    is_filtered: bool,
    rows: Vec<ListedRow<'a>>,
    over: Vec<ListedRow<'a>>,
    over_count: usize,
    more_over: bool,
    range: String,
    first: Option<String>,
    previous: Option<String>,
    next: Option<String>,
    last: Option<String>,
}

#[derive(Serialize)]
struct ListedRow<'a> {
    id: Option<i64>,
    name: &'a str,
    path: String,
    state: &'static str,
    /// Why it is in this state, or when it begins and expires.
    reason: Option<String>,
    states: Vec<StateShare>,
    rate: Option<String>,
}

impl<'a> CampaignList<'a> {
    fn of(query: &'a ListQuery, snapshot: &'a Snapshot) -> Self {
        let listed = query.choose(&snapshot.campaigns);
        let rows = |campaigns: &[&'a CampaignSummary]| {
            campaigns.iter().map(|campaign| ListedRow::of(campaign, snapshot)).collect()
        };
        let count = |count: usize| HumanCount(count as u64).to_string();
        let (page, pages) = (listed.page, listed.pages);
        let from = (page - 1) * PER_PAGE;
        let noun = if listed.count == 1 { "campaign" } else { "campaigns" };
        let to = |is_possible: bool, page: usize| is_possible.then(|| query.path(page));
        Self {
            title: match (query.is_over(), query.search()) {
                (true, _) => "Done and cancelled campaigns",
                (false, "") => "Campaigns that are not done",
                (false, _) => "Campaigns found",
            },
            none: if query.search().is_empty() {
                "All campaigns are done."
            } else {
                "No campaign has this in its name."
            },
            search: query.search(),
            is_filtered: query.is_filtered(),
            rows: rows(&listed.rows),
            over: rows(&listed.over),
            over_count: listed.over_count,
            more_over: listed.over_count > listed.over.len(),
            range: match pages {
                1 => format!("{} {noun}", count(listed.count)),
                _ => format!(
                    "{} to {} of {} {noun}",
                    count(from + 1),
                    count(from + listed.rows.len()),
                    count(listed.count)
                ),
            },
            first: to(page > 1, 1),
            previous: to(page > 1, page.saturating_sub(1)),
            next: to(page < pages, page + 1),
            last: to(page < pages, pages),
        }
    }
}

impl<'a> ListedRow<'a> {
    fn of(campaign: &'a CampaignSummary, snapshot: &Snapshot) -> Self {
        let id = snapshot.settings_of(&campaign.campaign).map(|settings| settings.id);
        Self {
            id,
            name: &campaign.campaign,
            path: path_of(&campaign.campaign),
            state: campaign.state,
            reason: campaign.state_reason.clone().or_else(|| campaign.next.describe()),
            states: states(&campaign.totals),
            rate: id
                .filter(|_| !campaign.is_over())
                .and_then(|id| snapshot.rate(Some(id)))
                .map(rate),
        }
    }
}

#[derive(Default, Serialize)]
pub(super) struct OverviewPage<'a> {
    revision: u64,
    is_counting: bool,
    counted: String,
    imported: u64,
    states: Vec<StateShare>,
    delivery: Vec<DeliveryShare>,
    now: Vec<String>,
    alerts: Vec<ShownAlert>,
    last_hour: Option<Chart>,
    has_campaigns: bool,
    list: CampaignList<'a>,
    #[serde(flatten)]
    activity: Activity<'a>,
}

impl View for OverviewPage<'_> {
    const TEMPLATE: &'static str = "overview.html";
    const SECTION: &'static str = "overview";
    const IS_LIVE: bool = true;
}

pub(super) async fn overview(
    State(shared): State<Arc<ServerState>>,
    visitor: Visitor,
    Query(query): Query<ListQuery>,
) -> Response {
    let snapshot = shared.counts.recent().await;
    if let Some(response) = unchanged(query.live, &snapshot) {
        return response;
    }
    let is_over = snapshot.campaigns.iter().all(CampaignSummary::is_over);
    let now = snapshot.rate(None).filter(|_| !is_over);
    let due = snapshot
        .campaigns
        .iter()
        .filter(|campaign| campaign.is_due())
        .map(|campaign| campaign.totals.queued)
        .sum();
    let page = OverviewPage {
        revision: snapshot.revision,
        is_counting: snapshot.revision == 0,
        counted: ago(snapshot.age()),
        imported: snapshot.totals.imported,
        states: states(&snapshot.totals),
        delivery: delivery(&snapshot.totals),
        now: now_facts(&snapshot, now, None, due),
        alerts: shown_alerts(&shared, &snapshot, None),
        last_hour: last_hour(&snapshot, None),
        has_campaigns: !snapshot.campaigns.is_empty(),
        list: CampaignList::of(&query, &snapshot),
        activity: Activity::of(&snapshot),
    };
    render(StatusCode::OK, &visitor, &page)
}

#[cfg(test)]
mod tests {
    use smsq_report::NextDue;
    use smsq_store::report::Totals;

    use super::super::render::tests::assert_renders;
    use super::*;

    fn campaign(name: &str, state: &'static str) -> CampaignSummary {
        CampaignSummary {
            mode: smsq_store::Mode::Real,
            campaign: name.to_owned(),
            state,
            state_reason: None,
            window: None,
            budget: None,
            next: NextDue::default(),
            totals: Totals::default(),
        }
    }

    fn query(q: &str, show: &str, page: usize) -> ListQuery {
        ListQuery { q: q.to_owned(), show: show.to_owned(), page: Some(page), live: None }
    }

    fn names<'a>(campaigns: &[&'a CampaignSummary]) -> Vec<&'a str> {
        campaigns.iter().map(|campaign| campaign.campaign.as_str()).collect()
    }

    #[test]
    fn what_needs_a_person_is_listed_first_and_done_is_apart() {
        let all = [
            campaign("a", "paused"),
            campaign("b", "active"),
            campaign("c", "done"),
            campaign("d", "stopped"),
            campaign("e", "active"),
            campaign("f", "cancelled"),
        ];
        let listed = query("", "", 1).choose(&all);
        assert_eq!(names(&listed.rows), ["d", "e", "b", "a"]);
        assert_eq!(names(&listed.over), ["f", "c"]);
        let over = query("", "over", 1).choose(&all);
        assert_eq!((names(&over.rows), over.over.len()), (vec!["f", "c"], 0));
        let found = query("C", "", 1).choose(&all);
        assert_eq!(names(&found.rows), ["c"]);
    }

    #[test]
    fn every_campaign_is_on_one_page_of_many() {
        let all: Vec<CampaignSummary> =
            (0..5_001).map(|index| campaign(&format!("sale {index}"), "active")).collect();
        let mut seen = Vec::new();
        for page in 1..=101 {
            let listed = query("", "", page).choose(&all);
            assert_eq!((listed.page, listed.pages, listed.count), (page, 101, 5_001));
            seen.extend(names(&listed.rows));
        }
        seen.reverse();
        let all: Vec<&CampaignSummary> = all.iter().collect();
        assert_eq!(seen, names(&all));
    }

    #[test]
    fn list_of_campaigns_has_the_names_of_its_template() {
        let mut snapshot = Snapshot::empty();
        snapshot.campaigns = vec![campaign("a", "paused"), campaign("b", "done")];
        assert_renders(&OverviewPage {
            has_campaigns: true,
            list: CampaignList::of(&query("", "", 1), &snapshot),
            activity: Activity::of(&snapshot),
            ..OverviewPage::default()
        });
    }

    #[test]
    fn address_of_a_page_keeps_the_query() {
        assert_eq!(query("", "", 1).path(3), "/?page=3");
        let path = query(" a&b ", "over", 1).path(2);
        assert_eq!(path, "/?page=2&show=over&q=a%26b");
    }
}

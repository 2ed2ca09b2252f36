//! Pages and endpoints with thousands of campaigns.

use super::Served;
use crate::campaigns::{CAMPAIGNS, make_campaigns};
use crate::support::Scratch;
use crate::support::databases::with_every_database;
use crate::support::practice::list;

#[test]
fn pages_and_endpoints_work_with_5000_campaigns() {
    with_every_database(|db| {
        let scratch = Scratch::at(&db.url);
        scratch.write_cellar("http://127.0.0.1:1");
        scratch.import(&list(5));
        make_campaigns(db);
        let served = Served::start(&scratch);
        let campaigns = served.api("admin", "GET", "/v1/campaigns", "").assert_status(200);
        let listed = campaigns.json()["campaigns"].as_array().map(Vec::len);
        assert_eq!(listed, usize::try_from(CAMPAIGNS + 1).ok());
        for path in [
            "/v1/campaigns/old-17",
            "/v1/campaigns/old-17/report.csv",
            "/v1/messages?phone=%2B447400123456",
            "/metrics",
            "/healthz",
            "/readyz",
        ] {
            let answer = served.api("admin", "GET", path, "");
            assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        }
        let metrics = served.api("admin", "GET", "/metrics", "").body;
        assert!(metrics.contains("smsq_database_up 1"), "{metrics}");
        let cookie = served.log_in("admin");
        for path in ["/", "/campaigns/old-17", "/audit", "/search", "/suppression"] {
            let page = served.page(&cookie, path);
            assert_eq!(page.status, 200, "{path}: {}", page.body);
        }
    });
}

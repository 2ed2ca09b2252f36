//! Complete imports into a database, and the rejects files.

use std::path::Path;

use smsq_message::phone::Dialling;
use smsq_store::{Access, Campaign, ImportApproval, NewCampaign, Store};

use super::*;

const fn keep(max_samples: usize) -> KeptRows {
    KeptRows { max_samples, rejects_file: false }
}

struct Fixture {
    folder: tempfile::TempDir,
    store: Store,
    campaign: Campaign,
    approval: ImportApproval,
}

impl Fixture {
    async fn new() -> Self {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let url = format!("sqlite://{}", folder.path().join("test.db").display());
        let store = Store::open(&url, Access::Create).await.expect("opens");
        let now = store.now().await.expect("the clock");
        let new = NewCampaign {
            name: "test".to_owned(),
            settings: smsq_store::CampaignSettings {
                unique_by: Some("phone".to_owned()),
                ..smsq_store::CampaignSettings::default()
            },
        };
        let campaign = store.open_campaign(&new, now).await.expect("a campaign");
        Self { folder, approval: ImportApproval::OneByOne(String::new()), store, campaign }
    }

    fn options(&self, name: &str, content: &str) -> Options {
        let file = self.folder.path().join(name);
        std::fs::write(&file, content).expect("writes");
        self.options_for(&file)
    }

    fn options_for(&self, file: &Path) -> Options {
        Options {
            file: file.to_path_buf(),
            text: TextSource::Text("Hi {{ name }}".to_owned()),
            dialling: Dialling::from("CN".parse().ok()),
            rejects: Some(self.folder.path().join("rejects.csv")),
            ..Options::default()
        }
    }

    async fn import(&self, options: Options) -> Summary {
        let plan = Plan::prepare(options).expect("a plan");
        let imported = run(&plan, self.target(), &|_| None, |_, _| {}).await;
        imported.expect("imports")
    }

    fn target(&self) -> Target<'_> {
        Target {
            store: &self.store,
            campaign: &self.campaign,
            schedule: &|_| Schedule::default(),
            division: None,
            posted_by: None,
            approval: &self.approval,
        }
    }
}

const LIST: &str = "phone,name\n13800138000,Ann\n1.38E10,Bob\n+86 138 0013 8000,Ann again\n13800138001,\n13800138002,李\n";

#[tokio::test]
async fn list_is_imported_and_bad_rows_are_written() {
    let fixture = Fixture::new().await;
    let summary = fixture.import(fixture.options("list.csv", LIST)).await;
    assert_eq!(
        (summary.rows, summary.accepted, summary.duplicates, summary.rejected),
        (5, 2, 1, 2)
    );
    let expected = SegmentTotals { messages: 2, total: 2, gsm7: 1, ucs2: 1 };
    assert_eq!(summary.segments, expected);
    let rejects =
        std::fs::read_to_string(summary.rejects_file.expect("a rejects file")).expect("reads");
    insta::assert_snapshot!(rejects, @r#"
    phone,name,smsq_text,smsq_line,smsq_reason
    1.38E10,Bob,,3,"`1.38E10` is a number in scientific notation, its last digits may be lost: format the column as text where the file came from, and export it again"
    13800138001,,,5,"no value for `name`, and the text needs it"
    "#);
}

#[tokio::test]
async fn second_import_adds_only_fixed_rows() {
    let fixture = Fixture::new().await;
    let first = fixture.import(fixture.options("list.csv", LIST)).await;
    let again = fixture.import(fixture.options("list.csv", LIST)).await;
    assert_eq!((again.accepted, again.duplicates, again.rejected), (0, 3, 2));
    assert_eq!(again.rejects_file, first.rejects_file);
    let rejects = first.rejects_file.expect("a rejects file");
    let unfixed = fixture.import(fixture.options_for(&rejects)).await;
    assert_eq!((unfixed.accepted, unfixed.rejected), (0, 2));
    let text = std::fs::read_to_string(&rejects).expect("reads");
    std::fs::write(&rejects, text.replace("1.38E10", "13800138009")).expect("writes");
    let fixed = fixture.import(fixture.options_for(&rejects)).await;
    assert_eq!((fixed.accepted, fixed.rejected), (1, 1));
}

#[tokio::test]
async fn preview_matches_the_import_and_writes_nothing() {
    let fixture = Fixture::new().await;
    let plan = Plan::prepare(fixture.options("list.csv", LIST)).expect("a plan");
    let known = Some((&fixture.store, Some(&fixture.campaign)));
    let preview = plan
        .preview(&mut SeenKeys::default(), keep(1), known, &|_| None, |_| {})
        .await
        .expect("previews");
    assert_eq!(
        (
            preview.summary.rows,
            preview.summary.accepted,
            preview.summary.duplicates,
            preview.summary.rejected
        ),
        (5, 2, 1, 2)
    );
    assert_eq!(preview.stats.samples.len(), 1);
    assert_eq!(preview.stats.samples[0].content, "Hi Ann");
    assert_eq!(preview.rejects.len(), 1);
    assert_eq!(preview.stats.expensive(), [('李', 1)]);
    assert!(!fixture.folder.path().join("rejects.csv").exists());
    let summary = fixture.import(fixture.options("list.csv", LIST)).await;
    assert_eq!(summary.segments, preview.stats.segments);
    let after = plan
        .preview(&mut SeenKeys::default(), keep(1), known, &|_| None, |_| {})
        .await
        .expect("previews");
    assert_eq!((after.summary.accepted, after.summary.duplicates), (0, 3));
}

#[tokio::test]
async fn campaign_keeps_its_unique() {
    let fixture = Fixture::new().await;
    let options = Options { unique: Some(Unique::None), ..fixture.options("list.csv", LIST) };
    let plan = Plan::prepare(options).expect("a plan");
    let error = plan.unique_in(&fixture.campaign).expect_err("another key");
    assert_eq!(error.to_string(), "campaign `test` has `--unique phone`, not `--unique none`");
}

#[tokio::test]
async fn long_list_is_imported_in_batches_with_progress() {
    let fixture = Fixture::new().await;
    let rows: Vec<String> = (0..20_500).map(|number| format!("139000{number:05},Ann\n")).collect();
    let list = format!("phone,name\n{}", rows.concat());
    let plan = Plan::prepare(fixture.options("long.csv", &list)).expect("a plan");
    let mut seen = Vec::new();
    let summary = run(&plan, fixture.target(), &|_| None, |rows, total| {
        seen.push((rows, total));
    })
    .await;
    let summary = summary.expect("imports");
    assert_eq!(summary.accepted, 20_500);
    let rows: Vec<u64> = seen.iter().map(|(rows, _)| *rows).collect();
    assert_eq!(rows, [20_000, 20_500]);
    assert_eq!(seen.last(), Some(&(20_500, Some(20_500))));
}

#[tokio::test]
async fn file_that_grows_during_import_is_reported() {
    let fixture = Fixture::new().await;
    let options = fixture.options("list.csv", LIST);
    let file = options.file.clone();
    let plan = Plan::prepare(options).expect("a plan");
    let grown = format!("{LIST}13800138005,Late\n13800138006,Later\n");
    std::fs::write(&file, grown).expect("grows");
    let ran = run(&plan, fixture.target(), &|_| None, |_, _| {}).await;
    let error = ran.expect_err("it was changed");
    assert!(error.to_string().ends_with("was changed while it was imported"), "{error}");
    let totals = fixture.store.report().totals(Some(fixture.campaign.id)).await.expect("counts");
    assert_eq!(totals.queued, 2);
}

#[tokio::test]
async fn long_texts_make_smaller_batches() {
    let fixture = Fixture::new().await;
    let rows: Vec<String> = (0..3_000).map(|number| format!("139000{number:05},Ann\n")).collect();
    let options = Options {
        text: TextSource::Text("x".repeat(smsq_message::text::content::LONGEST)),
        ..fixture.options("long.csv", &format!("phone,name\n{}", rows.concat()))
    };
    let plan = Plan::prepare(options).expect("a plan");
    let mut batches = 0;
    let preview = plan
        .preview(&mut SeenKeys::default(), keep(1), None, &|_| None, |_| {
            batches += 1;
        })
        .await;
    assert_eq!(preview.expect("previews").summary.accepted, 3_000);
    assert_eq!(batches, 2);
}

#[tokio::test]
async fn sample_list_has_bad_rows_and_duplicates() {
    let fixture = Fixture::new().await;
    let options = Options {
        text: TextSource::Template("../../templates/welcome.txt".into()),
        dialling: Dialling::default(),
        ..fixture.options_for(Path::new("../../tests/fixtures/recipients.csv"))
    };
    let summary = fixture.import(options).await;
    assert_eq!((summary.rows, summary.rejected, summary.duplicates), (500, 6, 4));
    assert_eq!(summary.accepted, 490);
}

#[tokio::test]
async fn unusual_files_are_read_or_refused() {
    let fixture = Fixture::new().await;
    for (name, expected) in [
        ("semicolons-bom.csv", Ok((3, 3, 0))),
        ("tabs.tsv", Ok((2, 2, 0))),
        ("chinese.csv", Ok((3, 3, 0))),
        ("sep-line.csv", Ok((1, 1, 0))),
        ("quotes.csv", Ok((6, 3, 3))),
        ("header-only.csv", Ok((0, 0, 0))),
        ("gbk.csv", Ok((1, 1, 0))),
        ("two-phones.csv", Err("several phone columns in `two-phones.csv`: `mobile`, `tel`")),
        (
            "no-header.csv",
            Err("unknown column `name` in `--text`: `no-header.csv` does not have it"),
        ),
    ] {
        let folder = "../../tests/fixtures/import/";
        let plan = Plan::prepare(fixture.options_for(&Path::new(folder).join(name)));
        let found = match plan {
            Ok(plan) => {
                let preview = plan
                    .preview(&mut SeenKeys::default(), keep(9), None, &|_| None, |_| {})
                    .await
                    .expect("previews");
                Ok((preview.summary.rows, preview.summary.accepted, preview.summary.rejected))
            }
            Err(error) => Err(error.to_string().replace(folder, "")),
        };
        assert_eq!(found, expected.map_err(str::to_owned), "{name}");
    }
}

//! Whole imports into a real database, and the files that come out of them.

use std::path::Path;

use super::*;
use crate::store::{Access, Campaign, NewCampaign, Store};

struct Desk {
    folder: tempfile::TempDir,
    store: Store,
    campaign: Campaign,
}

impl Desk {
    async fn new() -> Self {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let url = format!("sqlite://{}", folder.path().join("test.db").display());
        let store = Store::open(&url, Access::Create).await.expect("opens");
        let now = store.now().await.expect("the clock");
        let new = NewCampaign {
            name: "test".to_owned(),
            provider: None,
            sender: None,
            rate: crate::rate::Rates::default(),
            priority: 0,
            unique_by: Some("phone".to_owned()),
            window: None,
        };
        let campaign = store.open_campaign(&new, now).await.expect("a campaign");
        Self {
            folder,
            store,
            campaign,
        }
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
            region: "CN".parse().ok(),
            rejects: Some(self.folder.path().join("rejects.csv")),
            ..Options::default()
        }
    }

    async fn import(&self, options: Options) -> Summary {
        let plan = Plan::prepare(options).expect("a plan");
        let imported = run(&plan, self.target(), None, |_| {}).await;
        imported.expect("imports")
    }

    fn target(&self) -> Target<'_> {
        Target {
            store: &self.store,
            campaign: &self.campaign,
            schedule: &|_| Schedule::default(),
        }
    }
}

const LIST: &str = "phone,name\n13800138000,Ann\n1.38E10,Bob\n+86 138 0013 8000,Ann again\n13800138001,\n13800138002,李\n";

#[tokio::test]
async fn a_list_is_imported_and_its_bad_rows_are_written_down() {
    let desk = Desk::new().await;
    let summary = desk.import(desk.options("list.csv", LIST)).await;
    assert_eq!(
        (
            summary.rows,
            summary.accepted,
            summary.duplicates,
            summary.rejected
        ),
        (5, 2, 1, 2)
    );
    let expected = SegmentTotals {
        messages: 2,
        total: 2,
        gsm7: 1,
        ucs2: 1,
    };
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
async fn importing_a_list_twice_adds_nothing_and_mending_adds_what_was_missing() {
    let desk = Desk::new().await;
    let first = desk.import(desk.options("list.csv", LIST)).await;
    let again = desk.import(desk.options("list.csv", LIST)).await;
    assert_eq!(
        (again.accepted, again.duplicates, again.rejected),
        (0, 3, 2)
    );
    assert_eq!(again.rejects_file, first.rejects_file);
    let rejects = first.rejects_file.expect("a rejects file");
    let unmended = desk.import(desk.options_for(&rejects)).await;
    assert_eq!((unmended.accepted, unmended.rejected), (0, 2));
    let text = std::fs::read_to_string(&rejects).expect("reads");
    std::fs::write(&rejects, text.replace("1.38E10", "13800138009")).expect("writes");
    let mended = desk.import(desk.options_for(&rejects)).await;
    assert_eq!((mended.accepted, mended.rejected), (1, 1));
}

#[tokio::test]
async fn a_dry_run_shows_what_the_import_then_does_and_writes_nothing() {
    let desk = Desk::new().await;
    let plan = Plan::prepare(desk.options("list.csv", LIST)).expect("a plan");
    let known = Some((&desk.store, Some(&desk.campaign)));
    let preview = plan
        .preview(&mut SeenKeys::default(), 1, known, None, |_| {})
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
    assert_eq!(preview.stats.expensive, [('李', 1)]);
    assert!(!desk.folder.path().join("rejects.csv").exists());
    let summary = desk.import(desk.options("list.csv", LIST)).await;
    assert_eq!(summary.segments, preview.stats.segments);
    let after = plan
        .preview(&mut SeenKeys::default(), 1, known, None, |_| {})
        .await
        .expect("previews");
    assert_eq!((after.summary.accepted, after.summary.duplicates), (0, 3));
}

#[tokio::test]
async fn a_campaign_keeps_what_tells_its_messages_apart() {
    let desk = Desk::new().await;
    let options = Options {
        unique: Some(Unique::None),
        ..desk.options("list.csv", LIST)
    };
    let plan = Plan::prepare(options).expect("a plan");
    let error = plan.unique_in(&desk.campaign).expect_err("another key");
    assert_eq!(
        error.to_string(),
        "campaign `test` tells messages apart by `phone`, not by `none`"
    );
}

#[tokio::test]
async fn a_long_list_comes_in_batches_and_tells_how_far_it_is() {
    let desk = Desk::new().await;
    let rows: Vec<String> = (0..20_500)
        .map(|number| format!("139000{number:05},Ann\n"))
        .collect();
    let list = format!("phone,name\n{}", rows.concat());
    let plan = Plan::prepare(desk.options("long.csv", &list)).expect("a plan");
    let mut seen = Vec::new();
    let summary = run(&plan, desk.target(), None, |progress| seen.push(progress)).await;
    let summary = summary.expect("imports");
    assert_eq!(summary.accepted, 20_500);
    let rows: Vec<u64> = seen.iter().map(|progress| progress.rows).collect();
    assert_eq!(rows, [20_000, 20_500]);
    assert_eq!(seen.last().map(|last| last.bytes), Some(list.len() as u64));
}

#[tokio::test]
async fn a_file_that_grows_while_it_is_read_is_imported_as_it_was_and_that_is_said() {
    let desk = Desk::new().await;
    let options = desk.options("list.csv", LIST);
    let file = options.file.clone();
    let plan = Plan::prepare(options).expect("a plan");
    let grown = format!("{LIST}13800138005,Late\n13800138006,Later\n");
    std::fs::write(&file, grown).expect("grows");
    let ran = run(&plan, desk.target(), None, |_| {}).await;
    let error = ran.expect_err("it was changed");
    assert!(
        error
            .to_string()
            .ends_with("was changed while it was imported"),
        "{error}"
    );
    let totals = desk
        .store
        .totals(Some(desk.campaign.id))
        .await
        .expect("counts");
    assert_eq!(totals.queued, 2);
}

#[tokio::test]
async fn long_texts_make_smaller_batches() {
    let desk = Desk::new().await;
    let rows: Vec<String> = (0..3_000)
        .map(|number| format!("139000{number:05},Ann\n"))
        .collect();
    let options = Options {
        text: TextSource::Text("x".repeat(crate::text::content::LONGEST)),
        ..desk.options("long.csv", &format!("phone,name\n{}", rows.concat()))
    };
    let plan = Plan::prepare(options).expect("a plan");
    let mut batches = 0;
    let preview = plan
        .preview(&mut SeenKeys::default(), 1, None, None, |_| batches += 1)
        .await;
    assert_eq!(preview.expect("previews").summary.accepted, 3_000);
    assert_eq!(batches, 2);
}

#[tokio::test]
async fn the_sample_list_has_a_few_bad_rows_and_a_few_duplicates() {
    let desk = Desk::new().await;
    let options = Options {
        text: TextSource::Template("templates/welcome.txt".into()),
        region: None,
        ..desk.options_for(Path::new("tests/fixtures/recipients.csv"))
    };
    let summary = desk.import(options).await;
    assert_eq!(
        (summary.rows, summary.rejected, summary.duplicates),
        (500, 6, 4)
    );
    assert_eq!(summary.accepted, 490);
}

#[tokio::test]
async fn odd_files_are_understood_or_refused_in_one_sentence() {
    let desk = Desk::new().await;
    for (name, expected) in [
        ("semicolons-bom.csv", Ok((3, 3, 0))),
        ("tabs.tsv", Ok((2, 2, 0))),
        ("chinese.csv", Ok((3, 3, 0))),
        ("sep-line.csv", Ok((1, 1, 0))),
        ("quotes.csv", Ok((6, 3, 3))),
        ("header-only.csv", Ok((0, 0, 0))),
        ("gbk.csv", Ok((1, 1, 0))),
        (
            "two-phones.csv",
            Err(
                "`two-phones.csv` has more than one column that may hold the phone: `mobile`, `tel`",
            ),
        ),
        (
            "no-header.csv",
            Err("`name` in `--text` is no column of `no-header.csv`"),
        ),
    ] {
        let folder = "tests/fixtures/import/";
        let plan = Plan::prepare(desk.options_for(&Path::new(folder).join(name)));
        let found = match plan {
            Ok(plan) => {
                let preview = plan
                    .preview(&mut SeenKeys::default(), 9, None, None, |_| {})
                    .await
                    .expect("previews");
                Ok((
                    preview.summary.rows,
                    preview.summary.accepted,
                    preview.summary.rejected,
                ))
            }
            Err(error) => Err(error.to_string().replace(folder, "")),
        };
        assert_eq!(found, expected.map_err(str::to_owned), "{name}");
    }
}

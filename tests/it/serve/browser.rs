//! The pages in a real browser: Chromium, by its driver.

use std::fmt::Write as _;
use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use fantoccini::wd::Capabilities;
use fantoccini::{Client, ClientBuilder, Locator};
use serde_json::json;
use smsq_sandbox::SandboxConfig;
use tempfile::TempDir;

use super::drafts::upload;
use super::{Served, configure};
use crate::support::databases::{Database, Kind};
use crate::support::practice::{Practice, list};
use crate::support::waiting::{PATIENCE, eventually};
use crate::support::{Gateway, Scratch};

/// The driver of a browser. It ends with the test.
struct Driver {
    process: Child,
    port: u16,
}

impl Driver {
    /// Chromedriver wants the same free port for IPv4 and IPv6, and ends if another process has one of them: then
    /// another driver is started, with another port.
    fn start(log: &Path) -> Self {
        for _ in 0..DRIVERS {
            let output = File::create(log).expect("a file");
            let process = Command::new("chromedriver")
                .args(["--port=0", "--disable-dev-shm-usage"])
                .stdin(Stdio::null())
                .stdout(output.try_clone().expect("the same file"))
                .stderr(output)
                .spawn()
                .expect("chromedriver (`tests/run` installs it)");
            let mut driver = Self { process, port: 0 };
            let mut ended = false;
            eventually("the driver listens or ends", || {
                ended = driver.process.try_wait().expect("a status").is_some();
                let text = std::fs::read_to_string(log).unwrap_or_default();
                let port = text.split("started successfully on port ").nth(1);
                let port = port.and_then(|rest| rest.split_once('.')?.0.trim().parse().ok());
                driver.port = port.unwrap_or_default();
                ended || driver.port > 0
            });
            if !ended {
                return driver;
            }
        }
        let text = std::fs::read_to_string(log).unwrap_or_default();
        panic!("{DRIVERS} drivers ended at their start: {text}");
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// How many drivers are started before a test fails.
const DRIVERS: u32 = 20;

/// A browser with an empty profile. Both processes end with the test.
struct Browser {
    client: Client,
    _driver: Driver,
    _profile: TempDir,
}

impl Browser {
    async fn start(settings: &[&str]) -> Self {
        let profile = tempfile::tempdir().expect("a folder");
        let driver = Driver::start(&profile.path().join("driver.log"));
        let folder = format!("--user-data-dir={}", profile.path().join("data").display());
        let mut arguments = vec![
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--window-size=1200,1000",
            folder.as_str(),
        ];
        arguments.extend(settings);
        let mut capabilities = Capabilities::new();
        capabilities.insert("goog:chromeOptions".to_owned(), json!({ "args": arguments }));
        let url = format!("http://127.0.0.1:{}", driver.port);
        let mut builder =
            ClientBuilder::new(hyper_util::client::legacy::connect::HttpConnector::new());
        let client = builder.capabilities(capabilities).connect(&url).await;
        Self { client: client.expect("a browser"), _driver: driver, _profile: profile }
    }

    async fn text(&self, selector: &str) -> String {
        let found = self.client.wait().at_most(PATIENCE);
        let found = found.for_element(Locator::Css(selector)).await;
        // A part of a live page may be replaced while it is read.
        match found {
            Ok(element) => element.text().await.unwrap_or_default(),
            Err(error) => panic!("{selector}: {error}"),
        }
    }

    /// Waits until the text of an element satisfies a condition.
    async fn until(&self, selector: &str, holds: impl Fn(&str) -> bool) -> String {
        let deadline = std::time::Instant::now() + PATIENCE;
        loop {
            let text = self.text(selector).await;
            if holds(&text) {
                return text;
            }
            assert!(std::time::Instant::now() < deadline, "{selector}: {text}");
            tokio::task::yield_now().await;
        }
    }

    /// Waits until a script returns a value.
    async fn until_script(&self, script: &str, expected: &serde_json::Value) {
        let deadline = std::time::Instant::now() + PATIENCE;
        loop {
            let value = self.script(script).await;
            if value == *expected {
                return;
            }
            assert!(std::time::Instant::now() < deadline, "{script}: {value}");
            tokio::task::yield_now().await;
        }
    }

    async fn click(&self, selector: &str) {
        let found = self.client.wait().at_most(PATIENCE);
        let found = found.for_element(Locator::Css(selector)).await;
        found.expect(selector).click().await.expect(selector);
    }

    async fn go(&self, url: &str) {
        self.client.goto(url).await.expect(url);
    }

    async fn script(&self, script: &str) -> serde_json::Value {
        let result = self.client.execute(script, Vec::new()).await;
        result.expect(script)
    }

    /// Enters a text in a field.
    async fn enter(&self, selector: &str, text: &str) {
        let found = self.client.wait().at_most(PATIENCE);
        let field = found.for_element(Locator::Css(selector)).await;
        let field = field.expect(selector);
        field.send_keys(text).await.expect(selector);
    }

    /// Logs in with the token of a role, and out before.
    async fn log_in(&self, served: &Served, role: &str) {
        let base = format!("http://{}", served.address);
        self.go(&format!("{base}/logout")).await;
        let deleted = self.client.delete_all_cookies().await;
        deleted.expect("no cookies");
        self.go(&format!("{base}/#token={}", served.tokens[role])).await;
        self.until("h1", |text| text == "Campaigns").await;
    }

    async fn close(self) {
        self.client.close().await.expect("the browser ends");
    }
}

fn count(text: &str) -> u64 {
    let first = text.lines().next().unwrap_or_default();
    first.replace(',', "").parse().unwrap_or(0)
}

const SENT: &str = "[data-count=sent]";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn campaign_is_watched_paused_and_resumed() {
    // One database of a file and one of a server.
    for kind in [Kind::Sqlite, Kind::Postgres] {
        let Some(db) = Database::if_there(kind) else {
            continue;
        };
        let scratch = Scratch::at(&db.url);
        let _gateway = Gateway::start_cellar(&scratch, &[]);
        scratch.import(&list(5_000));
        scratch.run(["set", "--campaign", "c", "--rate", "20/s"]).assert_code(0);
        let served = Served::start(&scratch);
        let worker = scratch.start(["send", "--quiet"]);
        let browser = Browser::start(&[]).await;

        // A link with a token logs in, and its token is not kept in the address.
        let base = format!("http://{}", served.address);
        browser.go(&format!("{base}/#token={}", served.tokens["admin"])).await;
        browser.until("h1", |text| text == "Campaigns").await;
        let url = browser.client.current_url().await.expect("an address");
        assert!(!url.as_str().contains("token"), "{url}");

        // By keyboard: the first link skips to the content.
        let focused = "return document.activeElement.textContent";
        let body = browser.client.find(Locator::Css("body")).await;
        let body = body.expect("a body");
        body.send_keys("\u{e004}").await.expect("Tab");
        assert_eq!(browser.script(focused).await, json!("Skip to the content"));

        // The counts grow without a reload.
        browser.script("window.stays = true").await;
        let first = count(&browser.until(SENT, |text| count(text) > 0).await);
        browser.until(SENT, |text| count(text) > first).await;
        assert_eq!(browser.script("return window.stays").await, json!(true));

        // A second tab shows the same, and pauses the campaign.
        let tab = browser.client.new_window(true).await.expect("a tab");
        browser.client.switch_to_window(tab.handle).await.expect("the tab");
        browser.go(&format!("{base}/campaigns/c")).await;
        browser.click("a[href$='/pause']").await;
        browser.until("main p", |text| text.starts_with("Pause c?")).await;
        browser.click("main form button").await;
        browser.until("[role=status]", |text| text.contains("Paused c.")).await;
        browser.click("a.button").await;
        browser.until(".pill", |text| text == "paused").await;
        drop(worker);

        // A page of another site cannot use the cookie.
        let form = format!(
            "data:text/html,<form method=post action='{base}/campaigns/c/cancel'>\
             <input name=name value=c><button>Win</button></form>"
        );
        browser.go(&form).await;
        browser.click("button").await;
        browser.until("label", |text| text == "Access token").await;
        assert_eq!(scratch.checked_status(Some("c"))["state"], "paused");

        browser.go(&format!("{base}/campaigns/c/resume")).await;
        browser.click("main form button").await;
        browser.until("[role=status]", |text| text.contains("Resumed c.")).await;
        browser.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn focus_and_selection_stay_while_a_page_updates() {
    let scratch = Scratch::new();
    let _gateway = Gateway::start_cellar(&scratch, &[]);
    for index in 0..12 {
        let name = format!("campaign {index}");
        scratch.write("list.csv", &list(500));
        let line = ["import", "list.csv", "--campaign", &name, "--again", "--text", "Hi"];
        scratch.run(line).assert_code(0);
    }
    let served = Served::start(&scratch);
    let worker = scratch.start(["send", "--quiet", "--rate", "20/s"]);
    let browser = Browser::start(&[]).await;
    let base = format!("http://{}", served.address);
    browser.go(&format!("{base}/#token={}", served.tokens["admin"])).await;
    let counted = browser.until(SENT, |text| count(text) > 0).await;

    // The name of a campaign is selected, and a form is being filled in.
    browser
        .script(
            "getSelection().selectAllChildren(document.querySelector('#campaigns td.name a'));
             document.querySelector('input[name=q]').value = 'camp';
             window.revisions = 0;
             new MutationObserver((all) => {
                 window.revisions += all.some((one) => one.attributeName === 'data-revision');
             }).observe(document.getElementById('live'), { attributes: true });",
        )
        .await;
    let selected = browser.script("return getSelection().toString()").await;
    assert!(selected.as_str().is_some_and(|text| text.starts_with("campaign ")));
    browser.until(SENT, |text| count(text) > count(&counted)).await;
    browser.until_script("return window.revisions >= 2", &json!(true)).await;
    assert_eq!(browser.script("return getSelection().toString()").await, selected);
    let typed = browser.script("return document.querySelector('input[name=q]').value").await;
    assert_eq!(typed, json!("camp"));

    // Tab reaches every link and button in their order, though the page changes between the strokes.
    let order = "const all = document.querySelectorAll('a[href], button, input');
        window.order = [...all].filter((one) => one.getClientRects().length > 0);
        window.order.forEach((one, index) => one.dataset.order = index);
        document.activeElement.blur();
        getSelection().removeAllRanges();
        scrollTo(0, 0);
        document.querySelector('.skip').focus();
        return window.order.length";
    let stops = browser.script(order).await.as_u64().expect("a number");
    assert!(stops > 15, "{stops}");
    for index in 1..stops {
        browser.script("window.revisions = 0").await;
        if index.is_multiple_of(4) {
            browser.until_script("return window.revisions >= 1", &json!(true)).await;
        }
        let focused = browser.client.active_element().await.expect("an element");
        focused.send_keys("\u{e004}").await.expect("Tab");
        let at = "return window.order.indexOf(document.activeElement)";
        assert_eq!(browser.script(at).await, json!(index));
    }
    drop(worker);
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn link_pasted_into_the_open_log_in_page_logs_in() {
    let scratch = Scratch::new();
    let served = Served::start(&scratch);
    let base = format!("http://{}", served.address);
    let browser = Browser::start(&[]).await;
    browser.go(&base).await;
    browser.until("label", |text| text == "Access token").await;
    browser.go(&format!("{base}/#token={}", served.tokens["admin"])).await;
    browser.until("h1", |text| text == "Campaigns").await;
    let url = browser.client.current_url().await.expect("an address");
    assert!(!url.as_str().contains("token"), "{url}");
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_works_on_a_phone_without_scripts_and_with_evil_texts() {
    let scratch = Scratch::new();
    let _gateway = Gateway::start_cellar(&scratch, &[]);
    let texts = [
        "<script>document.title = 'evil'</script>",
        "שלום עולם",
        "😀 👩‍👩‍👧‍👦",
        "long".repeat(60).leak(),
    ];
    let mut list = "phone,name\n".to_owned();
    for (index, text) in texts.iter().enumerate() {
        let _ = writeln!(list, "+1500555100{index},{text}");
    }
    scratch.write("list.csv", &list);
    scratch.run(["import", "list.csv", "--text", "{{ name }}", "--campaign", "c"]).assert_code(0);
    scratch.run(["send", "--quiet"]).assert_code(1);
    let served = Served::start(&scratch);
    let base = format!("http://{}", served.address);
    let blocked = "--blink-settings=scriptEnabled=false";
    for settings in [&[][..], &[blocked][..]] {
        let browser = Browser::start(settings).await;
        browser.client.set_window_size(375, 800).await.expect("a small window");
        browser.go(&base).await;
        let field = browser.client.wait().for_element(Locator::Css("#token")).await;
        let token = &served.tokens["operate"];
        field.expect("a field").send_keys(token).await.expect("typed");
        browser.click("#login button").await;
        browser.until("h1", |text| text == "Campaigns").await;
        browser.go(&format!("{base}/campaigns/c")).await;
        browser.until("main", |text| text.contains("שלום עולם")).await;
        let title = browser.client.title().await.expect("a title");
        assert_eq!(title, "c · smsq");
        let text = browser.text("main").await;
        assert!(text.contains("<script>document.title"), "{text}");
        if settings.is_empty() {
            let wide = browser.script("return document.documentElement.scrollWidth").await;
            assert!(wide.as_u64() <= Some(375), "the page is {wide} wide");
        }
        browser.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_token_and_log_out_are_shown() {
    let scratch = Scratch::new();
    let tokens = configure(&scratch, "");
    let served = Served::again(&scratch, tokens, "127.0.0.1:0");
    let base = format!("http://{}", served.address);
    let browser = Browser::start(&["--force-dark-mode"]).await;
    browser.go(&format!("{base}/#token=wrong")).await;
    browser.until("[role=alert]", |text| text.contains("Unknown token")).await;
    browser.go(&format!("{base}/#token={}", served.tokens["read"])).await;
    browser.until("h1", |text| text == "Campaigns").await;
    browser.click("nav form button").await;
    browser.until("label", |text| text == "Access token").await;
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn text_typed_after_the_log_in_has_ended_is_saved() {
    let scratch = Scratch::new();
    let (served, cookie) = Served::logged_in(&scratch, "operate");
    let draft = upload(&served, &cookie, "list.csv", "phone\n+447400123456\n");
    let base = format!("http://{}", served.address);
    let browser = Browser::start(&[]).await;
    browser.log_in(&served, "operate").await;
    browser.go(&format!("{base}{draft}/text")).await;
    let text = "\u{c5}ngstr\u{f6}m & \"S\u{f8}n\" <3";
    browser.enter("#text", text).await;
    let deleted = browser.client.delete_all_cookies().await;
    deleted.expect("no cookies");
    browser.click("#step-text > .buttons button").await;
    browser.until("main", |text| text.contains("What you entered is saved")).await;
    browser.enter("#token", "wrong").await;
    browser.click("#login button").await;
    browser.until("[role=alert]", |text| text.contains("Unknown token")).await;
    browser.enter("#token", &served.tokens["operate"]).await;
    browser.click("#login button").await;
    browser.until("#step-settings", |_| true).await;
    browser.go(&format!("{base}{draft}/text")).await;
    let saved = "return document.getElementById('text').value";
    browser.until_script(saved, &json!(text)).await;
    browser.close().await;
}

/// A workbook with a title, a sheet of notes, and numbers in several forms: some twice, some unusable.
fn untidy_workbook(rows: u32) -> Vec<u8> {
    let mut book = rust_xlsxwriter::Workbook::new();
    let notes = book.add_worksheet().set_name("Notes").expect("a sheet");
    notes.write(0, 0, "Exported by Ann").expect("a cell");
    let sheet = book.add_worksheet_with_constant_memory();
    let sheet = sheet.set_name("Customers").expect("a sheet");
    sheet.write(0, 0, "Customers of 2026").expect("a cell");
    for (column, name) in ["No.", "First name", "Mobile"].iter().enumerate() {
        let column = u16::try_from(column).expect("few columns");
        sheet.write(2, column, *name).expect("a cell");
    }
    for row in 0..rows {
        let number = 7_400_000_000_u64 + u64::from(row);
        let phone = match row % 100 {
            7 => "n/a".to_owned(),
            8 => String::new(),
            9 => format!("0{}", number - 3),
            odd if odd % 3 == 0 => format!("+44 (0) {number}"),
            odd if odd % 3 == 1 => format!("0{number}"),
            _ => format!("0044 {number}"),
        };
        sheet.write(row + 3, 0, row + 1).expect("a cell");
        sheet.write(row + 3, 1, format!("Ann {row}")).expect("a cell");
        sheet.write(row + 3, 2, phone).expect("a cell");
    }
    book.save_to_buffer().expect("a workbook")
}

/// Makes a campaign of the workbook, corrects mistakes, sends a test, and starts it.
async fn make_campaign(browser: &Browser, scratch: &Scratch, gateway: &Practice) {
    browser.click("nav a[href='/new']").await;
    let file = scratch.path("customers.xlsx");
    browser.enter("#file", file.to_str().expect("a path")).await;
    browser.click("#upload button").await;
    browser.until("#phone-problem", |text| text.contains("or another sheet")).await;
    browser.enter("#sheet", "Customers").await;
    browser.click("#step-list button.plain").await;
    browser.until("main", |text| text.contains("header in line 3")).await;
    browser.click("#step-list .buttons button").await;

    // The message follows what is typed.
    browser.enter("#text", "Hi ").await;
    browser.click("[data-insert*=First]").await;
    browser.enter("#text", ", come by").await;
    browser
        .until("#trial", |text| text.contains("Hi Ann 0, come by") && text.contains("1 × GSM-7"))
        .await;
    browser.enter("#text", " \u{2013} now").await;
    browser.until("#trial", |text| text.contains("UCS-2, - would not")).await;
    browser.click("#step-text > .buttons button").await;
    browser.enter("#campaign", "autumn").await;
    browser.enter("#rate", "fast").await;
    browser.click("#step-settings > .buttons button").await;
    browser.until("#rate-problem", |text| text.starts_with("Invalid rate")).await;
    let focused = "return document.activeElement.id";
    browser.until_script(focused, &json!("rate")).await;
    browser.script("document.getElementById('rate').value = '200/s'").await;
    browser.click("#step-settings > .buttons button").await;
    browser.until("#start", |text| text.contains("Send 2,910 messages")).await;

    // Back and reload lose nothing.
    browser.client.back().await.expect("the page before");
    let rate = "return document.getElementById('rate').value";
    browser.until_script(rate, &json!("200/s")).await;
    browser.client.refresh().await.expect("the same page");
    browser.until_script(rate, &json!("200/s")).await;
    browser.click(".steps a[href$='/check']").await;
    browser.enter("#phone", "07400 999999").await;
    browser.click("#test button").await;
    browser.until("main", |text| text.contains("Test messages: 1 sent")).await;
    assert!(gateway.phones().contains("+447400999999"));
    browser.click("form[action$='/check'] button").await;
    browser.until("#start", |text| text.contains("Send 2,910 messages")).await;
    browser.click("#start button").await;
    browser.until("h1", |text| text == "autumn").await;
    browser.until(".pill", |text| text == "unapproved").await;
    browser.until("#counted", |text| text.contains("another person has to approve it")).await;
    let approves = "return document.getElementById('action-approve')";
    assert_eq!(browser.script(approves).await, json!(null));
    assert_eq!(gateway.accepted(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn campaign_of_a_workbook_is_made_tested_approved_and_followed() {
    let gateway = Practice::start(SandboxConfig::default());
    let scratch = gateway.without_references("").scratch();
    let text = scratch.read("smsq.toml");
    let approval = "[approval]\nfrom_messages = 1000\n";
    scratch.write("smsq.toml", &format!("default_region = \"GB\"\n{text}\n{approval}"));
    std::fs::write(scratch.path("customers.xlsx"), untidy_workbook(3_000)).expect("a file");
    let tokens = configure(&scratch, "");
    let served = Served::running(&scratch, tokens, &["--listen", "127.0.0.1:0", "--send"]);
    let browser = Browser::start(&[]).await;
    let base = format!("http://{}", served.address);
    browser.log_in(&served, "operate").await;
    make_campaign(&browser, &scratch, &gateway).await;
    browser.log_in(&served, "admin").await;
    browser.go(&format!("{base}/campaigns/autumn")).await;
    browser.click("#action-approve").await;
    browser.until("main", |text| text.contains("2,910")).await;
    browser.click("main form button").await;
    browser.until("[role=status]", |text| text.contains("Approved")).await;
    browser.click("a.button").await;
    browser.until(SENT, |text| count(text) > 10).await;
    browser.click("#action-pause").await;
    browser.click("main form button").await;
    browser.until("[role=status]", |text| text.contains("Paused")).await;
    browser.click("a.button").await;
    browser.until(".pill", |text| text == "paused").await;
    browser.click("#action-resume").await;
    browser.click("main form button").await;
    browser.until("[role=status]", |text| text.contains("Resumed")).await;
    browser.click("a.button").await;
    browser.until(".pill", |text| text == "done").await;
    browser.until("#downloads", |text| text.contains("rejected rows of customers.xlsx (60)")).await;
    gateway.assert_each_once(2_911);

    // On a phone nothing is wider than the screen.
    browser.log_in(&served, "operate").await;
    browser.client.set_window_size(375, 800).await.expect("a small window");
    browser.go(&format!("{base}/new")).await;
    let fits =
        "return document.documentElement.scrollWidth <= document.documentElement.clientWidth";
    assert_eq!(browser.script(fits).await, json!(true));
    browser.close().await;
    served.stop();
    // It has a runtime of its own.
    tokio::task::spawn_blocking(move || drop(gateway)).await.expect("the gateway ends");
}

//! Lists that are read for long while a campaign is made: turns, their end, and the end of the server.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use super::drafts::{ready, save, upload};
use super::{Served, configure};
use crate::support::Scratch;
use crate::support::databases::{Database, Kind};
use crate::support::disk::Disk;
use crate::support::html::has;
use crate::support::proxy::{proxy_to, url_through};
use crate::support::waiting::{PATIENCE, eventually};

/// More rows than are checked while a test runs.
fn large() -> String {
    let row = |number: u32| format!("+4474{number:08}\n");
    let rows: String = (0..3_000_000).map(row).collect();
    format!("phone\n{rows}")
}

fn small(rows: u32) -> String {
    let row = |number: u32| format!("+4475{number:08}\n");
    let rows: String = (0..rows).map(row).collect();
    format!("phone\n{rows}")
}

/// Uploads a list and gives it a text; returns the address of its draft.
fn draft(served: &Served, cookie: &str, list: &str) -> String {
    let draft = upload(served, cookie, "list.csv", list);
    ready(served, cookie, &format!("{draft}/list"));
    save(served, cookie, &format!("{draft}/text"), &[("text", "Hi")]);
    draft
}

/// Waits until the check of a draft has read some rows.
fn until_checked_in_part(served: &Served, cookie: &str, draft: &str) {
    served.until_shown(cookie, &format!("{draft}/check"), "Read ");
}

fn is_checked(served: &Served, cookie: &str, draft: &str) -> bool {
    let page = served.page(cookie, &format!("{draft}/check")).assert_status(200);
    !has(&page.body, "#live progress")
}

#[test]
fn small_list_does_not_wait_for_a_large_one() {
    let scratch = Scratch::new();
    let text = "[log]\nlevel = \"debug\"\n";
    scratch.write_cellar("http://127.0.0.1:1");
    let config = scratch.read("smsq.toml");
    scratch.write("smsq.toml", &format!("{config}\n{text}"));
    let mut served = Served::start(&scratch);
    let cookie = served.log_in("operate");
    let first = draft(&served, &cookie, &large());
    until_checked_in_part(&served, &cookie, &first);
    // All steps of another person's list of three rows, while the large one is checked.
    let admin = served.log_in("admin");
    let other = draft(&served, &admin, &small(3));
    let page = ready(&served, &admin, &format!("{other}/check"));
    assert!(page.contains("3 messages"), "{page}");
    assert!(!is_checked(&served, &cookie, &first));
    // Another large list waits for its turn, but shows its first rows.
    let second = draft(&served, &cookie, &small(200_000));
    assert!(!is_checked(&served, &cookie, &second));
    // The reading of a draft that is deleted ends.
    save(&served, &cookie, &format!("{first}/delete"), &[]);
    served.process.until_printed("the reading ends", |printed| {
        printed.contains("a list is not read any more")
    });
    let page = ready(&served, &cookie, &format!("{second}/check"));
    assert!(page.contains("200,000 messages"), "{page}");
    served.stop().assert_code(0);
}

#[test]
fn server_ends_while_lists_are_checked_and_uploaded() {
    for send in [&[][..], &["--send"]] {
        let scratch = Scratch::new();
        let tokens = configure(&scratch, "");
        let line: Vec<&str> =
            ["--listen", "127.0.0.1:0"].into_iter().chain(send.iter().copied()).collect();
        let mut served = Served::running(&scratch, tokens, &line);
        let cookie = served.log_in("operate");
        let first = draft(&served, &cookie, &large());
        until_checked_in_part(&served, &cookie, &first);
        let uploading = begin_upload(&served, &cookie);
        let signalled = Instant::now();
        served.process.signal(Signal::TERM);
        served.process.ended().assert_code(0);
        // Nine seconds and the end of the process.
        let took = signalled.elapsed();
        assert!(took < Duration::from_secs(15), "{took:?}");
        drop(uploading);
    }
}

#[test]
fn second_signal_ends_the_server_at_once() {
    let scratch = Scratch::new();
    let mut served = Served::start(&scratch);
    let cookie = served.log_in("operate");
    let _uploading = begin_upload(&served, &cookie);
    served.process.signal(Signal::TERM);
    let address = served.address.clone();
    eventually("it does not listen any more", || TcpStream::connect(&address).is_err());
    served.process.signal(Signal::INT);
    served.process.ended().assert_code(130);
}

/// Begins to upload a list, and stands still.
fn begin_upload(served: &Served, cookie: &str) -> TcpStream {
    let mut stream = TcpStream::connect(&served.address).expect("connects");
    stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
    let head = format!(
        "POST /new HTTP/1.1\r\nHost: {}\r\nCookie: {cookie}\r\nSec-Fetch-Site: same-origin\r\n\
         Expect: 100-continue\r\nContent-Type: multipart/form-data; boundary=x\r\nContent-Length: 1000000\r\n\r\n",
        served.address
    );
    stream.write_all(head.as_bytes()).expect("a head");
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).expect("an answer");
    assert_eq!(&answer, b"HTTP/1.1 100");
    let part =
        "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.csv\"\r\n\r\nphone\n";
    stream.write_all(part.as_bytes()).expect("a part");
    stream
}

#[test]
fn list_is_checked_while_the_disk_is_full() {
    let scratch = Scratch::new();
    let tokens = configure(&scratch, "");
    let Some(mut disk) = Disk::mount(&scratch, "32m") else {
        return;
    };
    disk.start("--format json serve --listen 127.0.0.1:0");
    let mut printed = String::new();
    eventually("the server listens", || {
        let read = std::fs::read_to_string(scratch.path("started.out"));
        printed = read.unwrap_or_default();
        printed.ends_with('\n')
    });
    let printed: Value = serde_json::from_str(&printed).expect("JSON");
    let url = printed["url"].as_str().expect("a URL");
    // The process of the disk's shell, which the disk ends.
    let process = scratch.start(["--version"]);
    let served = Served { process, address: url.trim_start_matches("http://").to_owned(), tokens };
    let cookie = served.log_in("operate");
    let list = format!("{}n/a\n", small(300));
    let good = draft(&served, &cookie, &small(300));
    let with_rejects = draft(&served, &cookie, &list);
    disk.fill();
    let page = ready(&served, &cookie, &format!("{good}/check"));
    assert!(page.contains("300 messages"), "{page}");
    // Its rejected row cannot be kept, and the page says so.
    let page = ready(&served, &cookie, &format!("{with_rejects}/check"));
    assert!(page.contains("No space left on device"), "{page}");
    disk.free();
    save(&served, &cookie, &format!("{with_rejects}/check"), &[]);
    let page = ready(&served, &cookie, &format!("{with_rejects}/check"));
    assert!(page.contains("300 messages"), "{page}");
}

#[test]
fn check_is_made_again_when_the_database_is_back() {
    for kind in [Kind::Postgres, Kind::Mysql] {
        let Some(db) = Database::if_there(kind) else {
            continue;
        };
        let proxy = proxy_to(&db);
        let scratch = Scratch::at(&url_through(&proxy, &db));
        let (served, cookie) = Served::logged_in(&scratch, "operate");
        let draft = draft(&served, &cookie, &small(3));
        proxy.refuse();
        proxy.cut_all();
        let path = format!("{draft}/check");
        // The check fails, and its result is not kept.
        served.page(&cookie, &path).assert_status(503);
        proxy.accept();
        let page = ready(&served, &cookie, &path);
        assert!(page.contains("3 messages"), "{page}");
    }
}

//! Databases that another program locks or whose disk is full: smsq waits or reports an error, and no message is lost
//! or repeated.

use std::time::Duration;

use rustix::process::Signal;
use smsq::sandbox::SandboxConfig;

use crate::support::Scratch;
use crate::support::disk::Disk;
use crate::support::practice::{Practice, list};
use crate::support::running::{eventually, until_unchanged};
use crate::support::shell::{Lock, sqlite};

const SEND: [&str; 3] = ["send", "--concurrency", "8"];

/// Slow enough to be interrupted.
fn latent() -> SandboxConfig {
    SandboxConfig {
        latency: Duration::from_millis(20),
        ..SandboxConfig::default()
    }
}

#[test]
fn sender_waits_for_a_locked_database() {
    let gateway = Practice::start(latent());
    let scratch = Scratch::new();
    gateway.configure_without_references(&scratch, "");
    scratch.import(&list(300));
    let sending = scratch.start(SEND);
    eventually("it sends", || gateway.requests() >= 40);
    let lock = Lock::hold(&scratch);
    until_unchanged("nothing can be claimed", Duration::from_secs(2), || {
        gateway.requests()
    });
    assert!(gateway.requests() < 300);
    drop(lock);
    let ran = sending.ended();
    assert_eq!(ran.code(), Some(0), "{ran}");
    gateway.assert_each_once(300);
    assert_eq!(scratch.checked_status(Some("c"))["sent"], 300);
    assert_eq!(sqlite(&scratch, "SELECT max(attempts) FROM sms_sent"), "1");
}

#[test]
fn signal_while_the_database_is_locked_loses_nothing() {
    let gateway = Practice::start(latent());
    let scratch = Scratch::new();
    gateway.configure_without_references(&scratch, "");
    scratch.import(&list(100));
    let mut sending = scratch.start(SEND);
    eventually("it sends", || gateway.requests() >= 20);
    let lock = Lock::hold(&scratch);
    until_unchanged("nothing can be claimed", Duration::from_millis(500), || {
        gateway.requests()
    });
    sending.signal(Signal::TERM);
    until_unchanged("it waits", Duration::from_millis(500), || {
        gateway.requests()
    });
    drop(lock);
    let ran = sending.ended();
    assert_eq!(ran.code(), Some(143), "{ran}");
    let status = scratch.checked_status(Some("c"));
    assert_eq!(status["sent"], gateway.accepted(), "{status}");
    assert_eq!(scratch.run(SEND).code(), Some(0));
    gateway.assert_each_once(100);
}

#[test]
fn import_continues_after_a_full_disk() {
    let gateway = Practice::start(SandboxConfig::default());
    let scratch = Scratch::new();
    gateway.configure_without_references(&scratch, "");
    scratch.write("list.csv", &list(9_000));
    let import = "import list.csv --text Hello --campaign c --format json";
    let Some(mut disk) = Disk::mount(&scratch, "1m") else {
        return;
    };
    let ran = disk.smsq(import);
    assert_eq!(ran.code(), Some(2), "{ran}");
    assert!(
        ran.stderr().contains("`disk/smsq.db`: its disk is full"),
        "{ran}"
    );
    assert!(ran.stderr().contains("hint: "), "{ran}");
    assert!(!scratch.path("list.rejects.csv").exists());

    let ran = disk.run("mount -o remount,size=64m disk");
    assert_eq!(ran.code(), Some(0), "{ran}");
    let ran = disk.smsq("check");
    assert_eq!(ran.code(), Some(0), "{ran}");
    let ran = disk.smsq(import);
    assert_eq!(ran.code(), Some(0), "{ran}");
    let status = disk.smsq("status --campaign c --format json").json();
    assert_eq!(status["imported"], 9_000, "{status}");
    assert_eq!(status["queued"], 9_000, "{status}");
}

#[test]
fn sender_waits_while_the_disk_is_full() {
    let gateway = Practice::start(latent());
    let scratch = Scratch::new();
    gateway.configure_without_references(&scratch, "");
    scratch.write("list.csv", &list(400));
    let Some(mut disk) = Disk::mount(&scratch, "64m") else {
        return;
    };
    let ran = disk.smsq("import list.csv --text Hello --campaign c");
    assert_eq!(ran.code(), Some(0), "{ran}");
    disk.start("send --concurrency 8");
    eventually("it sends", || gateway.requests() >= 40);
    disk.fill();
    eventually("it says so", || disk.said().contains("its disk is full"));
    until_unchanged("nothing can be claimed", Duration::from_secs(1), || {
        gateway.requests()
    });
    assert!(gateway.requests() < 400);
    disk.free();
    assert_eq!(disk.ended(), "0", "{}", disk.said());
    gateway.assert_each_once(400);
    let ran = disk.smsq("check");
    assert_eq!(ran.code(), Some(0), "{ran}");
}

#[test]
fn full_disk_at_the_start_sends_nothing() {
    let gateway = Practice::start(SandboxConfig::default());
    let scratch = Scratch::new();
    gateway.configure_without_references(&scratch, "");
    scratch.write("list.csv", &list(20));
    let Some(mut disk) = Disk::mount(&scratch, "4m") else {
        return;
    };
    let ran = disk.smsq("import list.csv --text Hello --campaign c");
    assert_eq!(ran.code(), Some(0), "{ran}");
    disk.fill();
    let ran = disk.smsq("send");
    assert_eq!(ran.code(), Some(2), "{ran}");
    assert!(ran.stderr().contains("`disk/smsq.db`: "), "{ran}");
    assert_eq!(gateway.requests(), 0);
    disk.free();
    let ran = disk.smsq("send");
    assert_eq!(ran.code(), Some(0), "{ran}");
    gateway.assert_each_once(20);
}

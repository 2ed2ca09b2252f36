//! Kills the server under load: every message that was answered is in the queue, exactly once.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::{Served, configure, request};
use crate::support::Scratch;
use crate::support::databases::with_every_database;

const CLIENTS: u32 = 8;
const ROUNDS: u32 = 3;
/// Answers before the server is killed.
const ANSWERS: usize = 60;

fn message(key: u32) -> String {
    format!(r#"{{"phone":"+4474001{key:05}","text":"Number {key}","dedupe_key":"{key}"}}"#)
}

#[test]
fn answered_message_survives_a_kill_and_a_repetition_adds_none() {
    with_every_database(|db| {
        let scratch = Scratch::at(&db.url);
        let tokens = configure(&scratch, "");
        let next = AtomicU32::new(0);
        let mut unanswered: Vec<u32> = Vec::new();
        let mut answered: HashSet<(u32, String)> = HashSet::new();
        for _ in 0..ROUNDS {
            let served = Served::again(&scratch, tokens.clone(), "127.0.0.1:0");
            let address = served.address.clone();
            let bearer = format!("Bearer {}", tokens["send"]);
            let is_over = AtomicBool::new(false);
            let open = Mutex::new(std::mem::take(&mut unanswered));
            let done = Mutex::new(Vec::new());
            std::thread::scope(|scope| {
                for _ in 0..CLIENTS {
                    scope.spawn(|| {
                        while !is_over.load(Ordering::Relaxed) {
                            let again = open.lock().expect("open").pop();
                            let key = again.unwrap_or_else(|| next.fetch_add(1, Ordering::Relaxed));
                            let headers = [("Authorization", bearer.as_str())];
                            let body = message(key);
                            let path = "/v1/messages";
                            let answer = request(&address, "POST", path, &headers, body.as_bytes());
                            match answer {
                                Some(answer) if [200, 202].contains(&answer.status) => {
                                    let id = answer.json()["id"].as_str().map(str::to_owned);
                                    let id = id.expect("an id");
                                    done.lock().expect("done").push((key, id));
                                }
                                _ => {
                                    open.lock().expect("open").push(key);
                                    // The server is gone.
                                    return;
                                }
                            }
                        }
                    });
                }
                let mut process = served.process;
                process.until("enough is answered", || done.lock().expect("done").len() >= ANSWERS);
                process.kill();
                is_over.store(true, Ordering::Relaxed);
            });
            answered.extend(done.into_inner().expect("done"));
            unanswered = open.into_inner().expect("open");
        }
        // What was not answered is posted again.
        let served = Served::again(&scratch, tokens.clone(), "127.0.0.1:0");
        for key in unanswered {
            let answer = served.post(&message(key));
            assert!([200, 202].contains(&answer.status), "{}", answer.body);
            let id = answer.json()["id"].as_str().expect("an id").to_owned();
            answered.insert((key, id));
        }
        // A message that was answered twice has one id.
        let keys: HashSet<u32> = answered.iter().map(|(key, _)| *key).collect();
        assert_eq!(keys.len(), answered.len(), "a message has two ids");
        for (key, id) in &answered {
            let found = served.api("send", "GET", &format!("/v1/messages/{id}"), "").json();
            assert_eq!(found["phone"], format!("+4474001{key:05}"), "{found}");
        }
        drop(served);
        let status = scratch.checked_status(None);
        assert_eq!(status["queued"], answered.len(), "{status}");
    });
}

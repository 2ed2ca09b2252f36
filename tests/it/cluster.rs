//! A cluster of servers whose writer is killed during a campaign: a MariaDB Galera cluster, which `tests/cluster` starts,
//! or a PostgreSQL primary and its standby, which `tests/engines` starts.

use rustix::process::{Pid, Signal, kill_process};

use crate::support::Scratch;
use crate::support::client::Client;
use crate::support::databases::Kind;
use crate::support::practice::{Practice, list, with_latency};
use crate::support::running::Running;
use crate::support::waiting::eventually;

const MESSAGES: u64 = 2_000;

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("missing `{name}`; `tests/cluster` sets it"))
}

/// Starts programs at once that create the tables, each on one node.
fn create_tables_on_every_node(servers: &str) {
    let (login, hosts) = servers.rsplit_once('@').expect("a login");
    let nodes: Vec<_> = hosts.split(',').map(|host| format!("{login}@{host}")).collect();
    for node in &nodes {
        let mut client = Client::open(Kind::Mysql, &format!("{node}/mysql"));
        let databases =
            "SELECT count(*) FROM information_schema.schemata WHERE schema_name = 'queue'";
        eventually("it has the database", || client.run(databases) == ["1"]);
    }
    let scratches: Vec<_> =
        nodes.iter().map(|node| Scratch::at(&format!("{node}/queue"))).collect();
    let programs: Vec<_> = (0..9)
        .map(|number| {
            let phone = format!("+44740090000{number}");
            scratches[number % nodes.len()].start(["suppress", "add", &phone])
        })
        .collect();
    for program in programs {
        program.ended().assert_code(0);
    }
}

#[test]
#[ignore = "it needs a cluster, which `tests/cluster` starts"]
fn campaign_survives_the_end_of_the_cluster_writer() {
    let servers = variable("SMSQ_TEST_CLUSTER");
    let writer: i32 = variable("SMSQ_TEST_CLUSTER_WRITER").parse().expect("a pid");
    let (kind, system) = if servers.starts_with("postgres:") {
        (Kind::Postgres, "postgres")
    } else {
        (Kind::Mysql, "mysql")
    };
    let (first, _) = servers.split_once(',').expect("several hosts");
    let (others, last) = servers.rsplit_once(',').expect("several hosts");
    let (login, _) = others.split_once("127.0.0.1").expect("a login");
    let last = format!("{login}{last}");
    Client::open(kind, &format!("{first}/{system}")).run("CREATE DATABASE queue");
    if kind == Kind::Mysql {
        create_tables_on_every_node(&servers);
    }
    let gateway = Practice::start(with_latency(20));
    let scratch = Scratch::at(&format!("{servers}/queue"));
    // Slow enough that the campaign is not finished when the writer is killed.
    gateway.with_references("rate = \"200/s\"").configure(&scratch);
    scratch.import(&list(MESSAGES));

    let send = ["send", "--concurrency", "8"];
    let mut workers = [scratch.start(send), scratch.start(send)];
    let [first, second] = &mut workers;
    let alive = first.until("a fifth is sent", || gateway.accepted() >= MESSAGES / 5);
    assert!(alive, "it ended before");
    second.until_printed("it has begun", |_| true);
    let writer = Pid::from_raw(writer).expect("a pid");
    kill_process(writer, Signal::KILL).expect("the writer is killed");
    assert!(gateway.accepted() < MESSAGES, "it was killed too late");
    if kind == Kind::Postgres {
        Client::open(kind, &format!("{last}/{system}")).run("SELECT pg_promote()");
    }

    for ran in workers.map(Running::ended) {
        assert_eq!(ran.code(), Some(0), "{ran}");
    }
    let status = scratch.checked_status(Some("c"));
    assert_eq!(status["sent"], MESSAGES, "{status}");
    gateway.assert_each_once(MESSAGES);
    // The other servers have the same data, as soon as they have applied it.
    let mut survivor = Client::open(kind, &format!("{last}/queue"));
    let sums =
        "SELECT concat_ws(' ', count(*), sum(accepted), count(DISTINCT reference)) FROM sms_sent";
    let all = [format!("{MESSAGES} {MESSAGES} {MESSAGES}")];
    eventually("it has all", || survivor.run(sums) == all);
    if kind == Kind::Mysql {
        let size = "SELECT variable_value FROM information_schema.global_status
                    WHERE variable_name = 'WSREP_CLUSTER_SIZE'";
        eventually("it knows who is left", || survivor.run(size) == ["2"]);
    }
}

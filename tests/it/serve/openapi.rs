//! The description of the API: it is true, and the table of routes in `docs/serving.md` is made from it.

use std::fmt::Write as _;

use serde_json::Value;

use super::{ROLES, Served};
use crate::support::Scratch;
use crate::support::tables::wrong_table;

/// Method, path and description of each operation.
fn operations(described: &Value) -> Vec<(String, &str, &Value)> {
    let paths = described["paths"].as_object().expect("paths");
    paths
        .iter()
        .flat_map(|(path, operations)| {
            let operations = operations.as_object().expect("operations");
            operations
                .iter()
                .map(|(method, operation)| (method.to_uppercase(), path.as_str(), operation))
        })
        .collect()
}

fn roles(operation: &Value) -> Vec<&str> {
    let roles = operation["security"][0]["token"].as_array().expect("roles");
    roles.iter().map(|role| role.as_str().expect("a role")).collect()
}

#[test]
fn described_roles_are_those_that_a_route_takes() {
    let scratch = Scratch::new();
    let served = Served::start(&scratch);
    let described = served.api("", "GET", "/openapi.json", "").json();
    assert_eq!(described["openapi"], "3.1.0");
    let operations = operations(&described);
    assert_eq!(operations.len(), 12);
    for (method, path, operation) in operations {
        let path = path.replace("{id}", "1").replace("{name}", "c");
        let answer = served.api("", &method, &path, "");
        assert_eq!(answer.status, 401, "{method} {path}: {}", answer.body);
        for role in ROLES {
            let answer = served.api(role, &method, &path, "");
            let is_taken = answer.status != 403;
            let is_described = roles(operation).contains(&role);
            assert_eq!(is_taken, is_described, "{role} {method} {path}: {}", answer.body);
        }
    }
    served.api("send", "DELETE", "/v1/messages", "").assert_status(405);
}

#[test]
fn page_about_the_server_has_the_table_of_routes() {
    let scratch = Scratch::new();
    let served = Served::start(&scratch);
    let described = served.api("", "GET", "/openapi.json", "").json();
    let mut table =
        String::from("| route | | role | limits of its own |\n| --- | --- | --- | --- |\n");
    for (method, path, operation) in operations(&described) {
        let summary = operation["summary"].as_str().expect("a summary");
        let roles = roles(operation).join("`, `");
        let limits = operation["x-limits"].as_str().unwrap_or("–");
        let _ = writeln!(table, "| `{method} {path}` | {summary} | `{roles}` | {limits} |");
    }
    let wrong = wrong_table("docs/serving.md", "Routes of the API", &table);
    assert_eq!(wrong, None);
}

//! The text format of Prometheus, made of the `OpenMetrics` format, which the textfile collector does not read.

use std::collections::HashSet;
use std::fmt::Write as _;

/// Names counters in comments as in the samples.
pub(super) fn without_open_metrics(text: &str) -> String {
    let comment = |line: &str| {
        let (keyword, rest) = line.strip_prefix("# ")?.split_once(' ')?;
        let (name, rest) = rest.split_once(' ')?;
        Some((keyword.to_owned(), name.to_owned(), rest.to_owned()))
    };
    let counters: HashSet<String> = text
        .lines()
        .filter_map(comment)
        .filter(|(keyword, _, rest)| keyword == "TYPE" && rest == "counter")
        .map(|(_, name, _)| name)
        .collect();
    let mut plain = String::with_capacity(text.len());
    for line in text.lines() {
        match comment(line).filter(|(_, name, _)| counters.contains(name)) {
            Some((keyword, name, rest)) => {
                let _ = writeln!(plain, "# {keyword} {name}_total {rest}");
            }
            None => {
                let _ = writeln!(plain, "{line}");
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_comments_of_counters_change() {
        let text = "# HELP a Help for a.\n# TYPE a counter\na_total{x=\"# TYPE b\"} 1\n\
                    # HELP b Help for a.\n# TYPE b gauge\nb 1\n";
        let plain = "# HELP a_total Help for a.\n# TYPE a_total counter\n\
                     a_total{x=\"# TYPE b\"} 1\n# HELP b Help for a.\n# TYPE b gauge\nb 1\n";
        assert_eq!(without_open_metrics(text), plain);
    }
}

//! Suggests the known name that a misspelled one probably means.

/// Jaro-Winkler similarity, from 0 to 1, above which two names are alike.
const ALIKE: f64 = 0.77;
/// The same where more than [`FEW`] names are known: some of them resemble any word by chance.
const ALIKE_AMONG_MANY: f64 = 0.88;
const FEW: usize = 100;

/// The known name most like `word`, if one is alike. Case, spaces and underscores do not matter, and the last part
/// of a name counts alone: `berlin` finds `Europe/Berlin`, `concurency` finds `sender.concurrency`.
pub fn closest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<String> {
    let word = plain(word);
    let likeness = |name: &str| {
        let name = plain(name);
        let last = name.rsplit(['/', '.']).next().unwrap_or_default();
        strsim::jaro_winkler(&word, &name).max(strsim::jaro_winkler(&word, last))
    };
    let known: Vec<&str> = known.into_iter().collect();
    let needed = if known.len() > FEW { ALIKE_AMONG_MANY } else { ALIKE };
    known
        .into_iter()
        .map(|name| (likeness(name), name))
        .filter(|(likeness, _)| *likeness > needed)
        .max_by(|(left, _), (right, _)| left.total_cmp(right))
        .map(|(_, name)| super::display::printable_line(name).into_owned())
}

/// ``did you mean `NAME`?``
pub fn did_you_mean<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<String> {
    closest(word, known).map(|name| format!("did you mean `{name}`?"))
}

fn plain(name: &str) -> String {
    name.to_lowercase().replace([' ', '_'], "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closest_of_many_names_must_be_more_alike() {
        let zone = "Pacific/Marquesas";
        assert_eq!(closest("Mars", [zone]).as_deref(), Some(zone));
        let many = vec![zone; FEW + 1];
        assert_eq!(closest("Mars", many.iter().copied()), None);
        assert_eq!(closest("Markesas", many).as_deref(), Some(zone));
    }

    #[test]
    fn closest_name_is_found_by_spelling() {
        let known = ["Europe/Berlin", "America/New_York", "sender.concurrency", "rate"];
        for (word, expected) in [
            ("berlin", Some("Europe/Berlin")),
            ("New York", Some("America/New_York")),
            ("sender.concurency", Some("sender.concurrency")),
            ("RATE", Some("rate")),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(closest(word, known).as_deref(), expected, "{word}");
        }
        assert_eq!(did_you_mean("raet", known).as_deref(), Some("did you mean `rate`?"));
    }
}

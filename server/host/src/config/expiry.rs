//! Rules about expiries in the form `PATTERN=TIME`.

use statestore_proto::glob::Pattern;
use statestore_proto::message::Expiry;

use super::{ConfigError, StoreSettings, time};

/// Maximum number of rules. Each SET is compared with the patterns of all of them.
const RULES_MAX: usize = 64;

/// A valid pattern of keys, and an expiry.
type Rule = (Box<[u8]>, Expiry);

/// Defaults and maxima of expiries. The first of each whose pattern matches a key applies.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    default: Vec<Rule>,
    max: Vec<Rule>,
}

impl Rules {
    pub(crate) const fn is_empty(&self) -> bool {
        self.default.is_empty() && self.max.is_empty()
    }

    /// The expiry of a value whose SET asks for `requested`.
    pub(crate) fn of(&self, key: &[u8], requested: Option<Expiry>) -> Option<Expiry> {
        let first = |rules: &[Rule]| {
            let matches = |pattern| Pattern::new(pattern).is_ok_and(|it| it.matches(key));
            rules.iter().find(|(pattern, _)| matches(pattern)).map(|(_, expiry)| *expiry)
        };
        let expiry = requested.or_else(|| first(&self.default));
        match (expiry, first(&self.max)) {
            (Some(expiry), Some(max)) => Some(expiry.min(max)),
            (expiry, max) => expiry.or(max),
        }
    }
}

/// Returns the rules of the settings.
pub(crate) fn rules(settings: &StoreSettings) -> Result<Rules, ConfigError> {
    let parsed = |key, texts: &[String]| {
        texts.iter().map(|text| parse(key, text)).collect::<Result<Vec<_>, _>>()
    };
    let (default, max) = ("default-expiry", "max-expiry");
    let rules = Rules {
        default: parsed(default, &settings.default_expiry)?,
        max: parsed(max, &settings.max_expiry)?,
    };
    let count = rules.default.len() + rules.max.len();
    if count > RULES_MAX {
        let key = if rules.default.len() > RULES_MAX { default } else { max };
        let reason = format!(
            "there are {count} rules about expiries, and the limit is {RULES_MAX}: use wider patterns"
        );
        return Err(ConfigError::setting(key, reason));
    }
    Ok(rules)
}

fn parse(key: &str, text: &str) -> Result<Rule, ConfigError> {
    let invalid = |reason: String| {
        ConfigError::setting(key, format!("{text}: {reason}; write it like sensors/*=10m"))
    };
    // A pattern may contain an equals sign.
    let (pattern, after) =
        text.rsplit_once('=').ok_or_else(|| invalid("the equals sign is missing".to_owned()))?;
    if pattern.is_empty() {
        return Err(invalid("the pattern is empty".to_owned()));
    }
    Pattern::new(pattern.as_bytes()).map_err(|error| invalid(error.to_string()))?;
    let after = time::parse(after).map_err(invalid)?;
    let expiry = Expiry::after(after).ok_or_else(|| invalid("the time is zero".to_owned()))?;
    Ok((pattern.as_bytes().into(), expiry))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn after(seconds: u64) -> Option<Expiry> {
        Expiry::after(Duration::from_secs(seconds))
    }

    fn settings(default: &[&str], max: &[&str]) -> StoreSettings {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        StoreSettings {
            default_expiry: owned(default),
            max_expiry: owned(max),
            ..StoreSettings::default()
        }
    }

    #[test]
    fn patterns_may_contain_an_equals_sign() {
        let rules = rules(&settings(&["a=b/*=10m"], &["*=1d"])).expect("rules");
        assert_eq!(rules.of(b"a=b/c", None), after(600));
        assert_eq!(rules.of(b"a", None), after(86_400));
    }

    #[test]
    fn first_default_and_first_maximum_of_a_key_apply() {
        let default = ["sensors/slow/*=9s", "sensors/*=1s", "sensors/*=77s"];
        let max = ["sensors/*=5s", "sensors/*=77s", "capped/*=3s"];
        let rules = rules(&settings(&default, &max)).expect("rules");
        for (key, requested, expected) in [
            ("sensors/1", 0, 1),
            ("sensors/1", 4, 4),
            ("sensors/1", 60, 5),
            ("sensors/slow/1", 0, 5),
            ("capped/1", 0, 3),
            ("capped/1", 2, 2),
            ("other", 0, 0),
            ("other", 60, 60),
        ] {
            assert_eq!(rules.of(key.as_bytes(), after(requested)), after(expected), "{key}");
        }
    }

    #[test]
    fn mistakes_name_the_setting_and_the_form() {
        for (default, max, parts) in [
            (&["a"][..], &[][..], &["default-expiry: a: ", "equals sign is missing"][..]),
            (&[], &["a=5"], &["max-expiry: a=5: "]),
            (&[], &["[=5s"], &["max-expiry: [=5s: "]),
            (&["=5s"], &[], &["the pattern is empty"]),
            (&["a=0s"], &[], &["default-expiry: a=0s: "]),
        ] {
            let error = rules(&settings(default, max)).expect_err("a mistake").to_string();
            for part in parts.iter().chain(&["write it like sensors/*=10m"]) {
                assert!(error.contains(part), "{part}: {error}");
            }
        }
        let many = vec!["a=1s"; 65];
        let error = rules(&settings(&many, &[])).expect_err("too many").to_string();
        assert!(error.contains("limit is 64"), "{error}");
    }
}

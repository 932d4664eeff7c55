//! Rules about expiries in the form `PATTERN=TIME`.

use statestore_proto::limits::EXPIRY_RULES_MAX;
use statestore_proto::message::Expiry;
use statestore_proto::store::ExpiryRule;

use super::{ConfigError, StoreSettings, time};

/// Returns the rules of the settings.
pub(crate) fn rules(settings: &StoreSettings) -> Result<Vec<ExpiryRule>, ConfigError> {
    let mut rules = Vec::new();
    let default = ("default-expiry", &settings.default_expiry);
    for text in default.1 {
        let (rule, expiry) = parse(default.0, text)?;
        rules.push(rule.default_expiry(Some(expiry)));
    }
    let max = ("max-expiry", &settings.max_expiry);
    for text in max.1 {
        let (rule, expiry) = parse(max.0, text)?;
        rules.push(rule.max_expiry(Some(expiry)));
    }
    if rules.len() > EXPIRY_RULES_MAX {
        let key = if default.1.len() > EXPIRY_RULES_MAX { default.0 } else { max.0 };
        let count = rules.len();
        return Err(ConfigError::setting(
            key,
            format!(
                "there are {count} rules about expiries, and the limit is {EXPIRY_RULES_MAX}: use \
                 wider patterns"
            ),
        ));
    }
    Ok(rules)
}

fn parse(key: &str, text: &str) -> Result<(ExpiryRule, Expiry), ConfigError> {
    let invalid = |reason: String| {
        ConfigError::setting(key, format!("{text}: {reason}; write it like sensors/*=10m"))
    };
    // A pattern may contain an equals sign.
    let (pattern, after) =
        text.rsplit_once('=').ok_or_else(|| invalid("the equals sign is missing".to_owned()))?;
    if pattern.is_empty() {
        return Err(invalid("the pattern is empty".to_owned()));
    }
    let rule = ExpiryRule::new(pattern.as_bytes()).map_err(|error| invalid(error.to_string()))?;
    let after = time::parse(after).map_err(invalid)?;
    let expiry = Expiry::after(after).ok_or_else(|| invalid("the time is zero".to_owned()))?;
    Ok((rule, expiry))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

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
        let after = |seconds| Expiry::after(Duration::from_secs(seconds));
        let found: Vec<_> =
            rules.iter().map(|rule| (rule.pattern(), rule.default(), rule.max())).collect();
        assert_eq!(found, [(&b"a=b/*"[..], after(600), None), (b"*", None, after(86_400))]);
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

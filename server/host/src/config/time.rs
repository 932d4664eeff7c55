//! Durations with units, such as `500ms` or `3s`.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serializer};

/// Parses a duration that is greater than zero.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(Duration::ZERO) => Err("must be greater than zero".to_owned()),
        Ok(duration) => Ok(duration),
        // The text is not quoted: any value may be a password in a wrong place.
        Err(_) => Err("must be a number with a unit, for example 500ms or 3s".to_owned()),
    }
}

pub(crate) fn serialize<S: Serializer>(
    duration: &Duration,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&humantime::format_duration(*duration))
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse(&text).map_err(serde::de::Error::custom)
}

/// The same for an optional duration.
pub(crate) mod option {
    use super::{Deserializer, Duration, Serializer};

    #[expect(clippy::ref_option, reason = "serde passes a reference")]
    pub(crate) fn serialize<S: Serializer>(
        duration: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match duration {
            Some(duration) => super::serialize(duration, serializer),
            None => serializer.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        super::deserialize(deserializer).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_needs_a_unit_and_is_greater_than_zero() {
        assert_eq!(parse("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse("3s"), Ok(Duration::from_secs(3)));
        assert!(parse("3").is_err_and(|error| error.contains("3s")));
        assert!(parse("0s").is_err() && parse("-1s").is_err());
    }
}

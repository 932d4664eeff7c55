//! Templates of keys and topics.

use statestore_proto::limits::TOPIC_BYTES_MAX;

use super::is_reserved;
use crate::failure::Failure;

/// Largest key that a template makes, in bytes.
const KEY_BYTES_MAX: usize = 32 << 10;

/// A text with placeholders for its source, which is a topic or a key, and for the levels of the
/// source.
#[derive(Clone, Debug)]
pub(super) struct Template {
    parts: Vec<Part>,
    names: &'static Names,
}

#[derive(Clone, Debug)]
enum Part {
    Text(String),
    Whole,
    /// A level of the source, from 0.
    Level(usize),
}

/// Words and limits of a kind of template.
#[derive(Debug)]
struct Names {
    option: &'static str,
    /// Placeholder of the whole source.
    whole: &'static str,
    bytes_max: usize,
    empty_template: &'static str,
    too_few_levels: &'static str,
    too_long: &'static str,
    empty: &'static str,
}

/// Keys made from topics.
static KEY: Names = Names {
    option: "--key",
    whole: "topic",
    bytes_max: KEY_BYTES_MAX,
    empty_template: "--key: the template is empty; write a key, such as 'state/{2}'",
    too_few_levels: "its topic has too few levels for --key",
    too_long: "its key is too long",
    empty: "its key is empty",
};

/// Topics made from keys.
static TOPIC: Names = Names {
    option: "--publish",
    whole: "key",
    bytes_max: TOPIC_BYTES_MAX,
    empty_template: "--publish: the template is empty; write a topic, such as 'devices/{2}'",
    too_few_levels: "it has too few levels for --publish",
    too_long: "its topic is too long",
    empty: "its topic is empty",
};

impl Template {
    /// Reads the template of --key for topics that match a filter.
    pub(super) fn of_key(text: &str, filter: &str) -> Result<Self, Failure> {
        // A shared subscription has two more levels, which are not part of the topic.
        let shared = filter.strip_prefix("$share/").and_then(|rest| rest.split_once('/'));
        let filter = shared.map_or(filter, |(_, filter)| filter);
        if filter == "#" {
            return Err(Failure::bad_input(
                "--topic: # matches every topic; name a part, such as 'sensors/#'",
            ));
        }
        let template = Self::parse(text, &KEY)?;
        let levels = (!filter.ends_with('#')).then(|| filter.split('/').count());
        let missing = template.parts.iter().find_map(|part| match (part, levels) {
            (Part::Level(level), Some(levels)) if *level >= levels => Some((level + 1, levels)),
            _ => None,
        });
        match missing {
            Some((level, levels)) => Err(Failure::bad_input(format_args!(
                "--key {text}: topics of --topic have {levels} levels, so {{{level}}} is empty"
            ))),
            None => Ok(template),
        }
    }

    /// Reads the template of --publish.
    pub(super) fn of_topic(text: &str) -> Result<Self, Failure> {
        let template = Self::parse(text, &TOPIC)?;
        let has_placeholder = template.parts.iter().any(|part| !matches!(part, Part::Text(_)));
        let has_wildcard = template
            .parts
            .iter()
            .any(|part| matches!(part, Part::Text(text) if text.contains(['+', '#', '\0'])));
        if !has_placeholder {
            return Err(Failure::bad_input(format_args!(
                "--publish {text}: all keys would have the same topic; write {{key}} for the key, \
                 or {{1}} for its first level"
            )));
        }
        if has_wildcard {
            return Err(Failure::bad_input(format_args!(
                "--publish {text}: a message has one topic, without + and #"
            )));
        }
        if is_reserved(text) || text.starts_with('$') {
            return Err(Failure::bad_input(format_args!(
                "--publish {text}: topics below clients/, statestore/ and $ belong to the store \
                 and the broker; use another one"
            )));
        }
        Ok(template)
    }

    fn parse(text: &str, names: &'static Names) -> Result<Self, Failure> {
        let Names { option, whole, .. } = *names;
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let Some((name, after)) = after.split_once('}') else {
                return Err(Failure::bad_input(format_args!(
                    "{option} {text}: a brace is not closed; write {{1}} or {{{whole}}}"
                )));
            };
            parts.push(Part::Text(before.to_owned()));
            parts.push(match name.parse::<usize>() {
                _ if name == whole => Part::Whole,
                Ok(0) => {
                    return Err(Failure::bad_input(format_args!(
                        "{option} {text}: levels are numbered from {{1}}"
                    )));
                }
                Ok(level) => Part::Level(level - 1),
                Err(_) => {
                    return Err(Failure::bad_input(format_args!(
                        "{option} {text}: unknown placeholder {{{name}}}; write {{{whole}}} for \
                         the {whole}, or {{1}} for its first level"
                    )));
                }
            });
            rest = after;
        }
        parts.push(Part::Text(rest.to_owned()));
        if text.is_empty() {
            return Err(Failure::bad_input(names.empty_template));
        }
        Ok(Self { parts, names })
    }

    /// The key for a topic, or the topic for a key.
    pub(super) fn fill(&self, source: &str) -> Result<String, &'static str> {
        let mut filled = String::new();
        for part in &self.parts {
            match part {
                Part::Text(text) => filled.push_str(text),
                Part::Whole => filled.push_str(source),
                Part::Level(level) => match source.split('/').nth(*level) {
                    Some(level) => filled.push_str(level),
                    None => return Err(self.names.too_few_levels),
                },
            }
            if filled.len() > self.names.bytes_max {
                return Err(self.names.too_long);
            }
        }
        if filled.is_empty() { Err(self.names.empty) } else { Ok(filled) }
    }

    /// The topic for a key.
    pub(super) fn fill_bytes(&self, key: &[u8]) -> Result<String, &'static str> {
        let key = str::from_utf8(key).map_err(|_| "it is not text")?;
        let topic = self.fill(key)?;
        if topic.contains(['+', '#']) {
            return Err("its topic would contain + or #");
        }
        // Brokers may close the connection that publishes such a topic (MQTT 5, section 1.5.4).
        if topic.chars().any(|char| char.is_control() || is_noncharacter(char)) {
            return Err("its topic would contain a control character or a non-character");
        }
        if is_reserved(&topic) || topic.starts_with('$') {
            return Err("its topic would belong to the store or the broker");
        }
        Ok(topic)
    }
}

/// Returns whether Unicode reserves the code point for internal use.
const fn is_noncharacter(char: char) -> bool {
    let code = char as u32;
    matches!(code, 0xfdd0..=0xfdef) || code & 0xfffe == 0xfffe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_is_made_from_the_topic_and_its_levels() {
        for (template, filter, topic, expected) in [
            ("state/{2}", "sensors/+/state", "sensors/7/state", Ok("state/7")),
            ("{topic}", "sensors/#", "sensors/7", Ok("sensors/7")),
            ("{3}-{1}", "$share/g/a/+/+", "a/b/c", Ok("c-a")),
            ("fixed", "a", "a", Ok("fixed")),
            ("{3}", "a/#", "a/b", Err("its topic has too few levels for --key")),
            ("{2}", "a/+", "a/", Err("its key is empty")),
        ] {
            let filled = Template::of_key(template, filter).expect("a template").fill(topic);
            assert_eq!(filled, expected.map(str::to_owned), "{template}");
        }
        let twice = Template::of_key("{topic}{topic}", "#/").expect("a template");
        assert_eq!(twice.fill(&"x".repeat(30_000)), Err("its key is too long"));
    }

    #[test]
    fn topic_is_made_from_the_key_and_its_levels() {
        let long = "x".repeat(40_000);
        for (template, key, expected) in [
            ("devices/{2}/state", "state/7", Ok("devices/7/state")),
            ("a/{key}", "b/c", Ok("a/b/c")),
            ("{1}", "k", Ok("k")),
            ("{2}", "k", Err("it has too few levels for --publish")),
            ("{2}", "k/", Err("its topic is empty")),
            ("{key}", "a/#", Err("its topic would contain + or #")),
            ("a/{2}", "a/+", Err("its topic would contain + or #")),
            ("{key}", "$SYS/x", Err("its topic would belong to the store or the broker")),
            ("{key}", "clients/x", Err("its topic would belong to the store or the broker")),
            ("{1}/x", "statestore", Err("its topic would belong to the store or the broker")),
            ("{key}{key}", &*long, Err("its topic is too long")),
        ] {
            let template = Template::of_topic(template).expect("a template");
            let filled = template.fill_bytes(key.as_bytes());
            assert_eq!(filled, expected.map(str::to_owned), "{template:?}");
        }
        let template = Template::of_topic("{key}").expect("a template");
        assert_eq!(template.fill_bytes(b"\xff"), Err("it is not text"));
    }

    #[test]
    fn mistakes_name_the_remedy() {
        let of_key = |template, filter| Template::of_key(template, filter).err();
        let of_topic = |template| Template::of_topic(template).err();
        for (failure, advice) in [
            (of_key("{2", "a/+"), "not closed"),
            (of_key("{0}", "a/+"), "from {1}"),
            (of_key("{3}", "a/+"), "have 2 levels"),
            (of_key("{level}", "a/+"), "{topic}"),
            (of_key("", "a"), "the template is empty"),
            (of_key("{1}", "#"), "'sensors/#'"),
            (of_key("{1}", "$share/g/#"), "'sensors/#'"),
            (of_topic("fixed"), "write {key}"),
            (of_topic("{topic}"), "write {key}"),
            (of_topic(""), "the template is empty"),
            (of_topic("a/+/{1}"), "without + and #"),
            (of_topic("{1}/#"), "without + and #"),
            (of_topic("clients/{1}"), "belong to the store"),
            (of_topic("statestore/{1}"), "belong to the store"),
            (of_topic("$SYS/{1}"), "belong to the store"),
        ] {
            let text = failure.expect(advice).to_string();
            assert!(text.contains(advice), "{advice}: {text}");
        }
    }
}

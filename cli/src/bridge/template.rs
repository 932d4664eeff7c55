//! The template of a key.

/// Largest key that a template makes, in bytes.
const KEY_BYTES_MAX: usize = 32 << 10;

/// A text with placeholders for the topic and its levels.
pub(super) struct Template(Vec<Part>);

enum Part {
    Text(String),
    Topic,
    /// A level of the topic, from 0.
    Level(usize),
}

impl Template {
    /// Reads the template of --key for topics that match a filter.
    pub(super) fn parse(text: &str, filter: &str) -> Result<Self, String> {
        // A shared subscription has two more levels, which are not part of the topic.
        let shared = filter.strip_prefix("$share/").and_then(|rest| rest.split_once('/'));
        let filter = shared.map_or(filter, |(_, filter)| filter);
        if filter == "#" {
            return Err("--topic: # matches every topic; name a part, such as 'sensors/#'".into());
        }
        let levels = (!filter.ends_with('#')).then(|| filter.split('/').count());
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let Some((name, after)) = after.split_once('}') else {
                return Err(format!(
                    "--key {text}: a brace is not closed; write {{1}} or {{topic}}"
                ));
            };
            parts.push(Part::Text(before.to_owned()));
            parts.push(match (name, name.parse::<usize>()) {
                ("topic", _) => Part::Topic,
                (_, Ok(0)) => {
                    return Err(format!("--key {text}: levels are numbered from {{1}}"));
                }
                (_, Ok(level)) if levels.is_some_and(|levels| level > levels) => {
                    return Err(format!(
                        "--key {text}: topics of --topic have {} levels, so {{{level}}} is empty",
                        levels.unwrap_or_default()
                    ));
                }
                (_, Ok(level)) => Part::Level(level - 1),
                _ => {
                    return Err(format!(
                        "--key {text}: unknown placeholder {{{name}}}; write {{topic}} for the \
                         topic, or {{1}} for its first level"
                    ));
                }
            });
            rest = after;
        }
        parts.push(Part::Text(rest.to_owned()));
        if text.is_empty() {
            return Err("--key: the template is empty; write a key, such as 'state/{2}'".into());
        }
        Ok(Self(parts))
    }

    /// The key for a topic.
    pub(super) fn fill(&self, topic: &str) -> Result<String, &'static str> {
        let mut key = String::new();
        for part in &self.0 {
            match part {
                Part::Text(text) => key.push_str(text),
                Part::Topic => key.push_str(topic),
                Part::Level(level) => match topic.split('/').nth(*level) {
                    Some(level) => key.push_str(level),
                    None => return Err("its topic has too few levels for --key"),
                },
            }
            if key.len() > KEY_BYTES_MAX {
                return Err("its key is too long");
            }
        }
        if key.is_empty() { Err("its key is empty") } else { Ok(key) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_the_topic_and_its_levels() {
        for (template, filter, topic, expected) in [
            ("state/{2}", "sensors/+/state", "sensors/7/state", Ok("state/7")),
            ("{topic}", "sensors/#", "sensors/7", Ok("sensors/7")),
            ("{3}-{1}", "$share/g/a/+/+", "a/b/c", Ok("c-a")),
            ("fixed", "a", "a", Ok("fixed")),
            ("{3}", "a/#", "a/b", Err("its topic has too few levels for --key")),
            ("{2}", "a/+", "a/", Err("its key is empty")),
        ] {
            let filled = Template::parse(template, filter).expect("a template").fill(topic);
            assert_eq!(filled, expected.map(str::to_owned), "{template}");
        }
        let twice = Template::parse("{topic}{topic}", "#/")
            .map(|template| template.fill(&"x".repeat(30_000)));
        assert!(matches!(twice, Ok(Err("its key is too long"))));
    }

    #[test]
    fn mistakes_name_the_remedy() {
        for (template, filter, advice) in [
            ("{2", "a/+", "not closed"),
            ("{0}", "a/+", "from {1}"),
            ("{3}", "a/+", "have 2 levels"),
            ("{level}", "a/+", "{topic}"),
            ("", "a", "the template is empty"),
            ("{1}", "#", "'sensors/#'"),
            ("{1}", "$share/g/#", "'sensors/#'"),
        ] {
            let error = Template::parse(template, filter).err().expect(template);
            assert!(error.contains(advice), "{template}: {error}");
        }
    }
}

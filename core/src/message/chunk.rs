//! The position of a chunk in its message. Drafts of the Azure SDKs split a large message into
//! chunks, each of which is a PUBLISH with [`CHUNK`](super::property::CHUNK).

/// The position of a chunk in its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChunkPosition {
    First,
    Later,
    /// The value has another form than those of the drafts.
    Unknown,
}

impl ChunkPosition {
    /// Reads the value of the property. The drafts differ:
    ///
    /// * `h:{message id}:0:…` for the first chunk, `d:{message id}:{index}` for the others
    /// * `{message id}:{index}`, where the message id is a UUID, or the same with semicolons
    /// * `{index}:{count}:{bytes}`
    /// * a JSON object with `chunkIndex`
    ///
    /// The other fields name, count or verify the chunks. They are not read.
    pub(crate) fn parse(value: &str) -> Self {
        let index = match value.trim_start().strip_prefix('{') {
            Some(members) => json_index(members),
            None => separated_index(value),
        };
        match index {
            Some(index) if !is_number(index) => Self::Unknown,
            Some(index) if index.bytes().all(|digit| digit == b'0') => Self::First,
            Some(_) => Self::Later,
            None => Self::Unknown,
        }
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn separated_index(value: &str) -> Option<&str> {
    let separator = value.chars().find(|char| matches!(char, ':' | ';'))?;
    let mut fields = value.split(separator);
    match fields.next()? {
        "h" | "d" => fields.nth(1),
        index if separator == ':' && is_number(index) => Some(index),
        _ => fields.next(),
    }
}

/// Returns the value of the member `chunkIndex`. `members` is an object without its first brace.
/// Members of the drafts are not nested, so the search ends at a nested member.
fn json_index(members: &str) -> Option<&str> {
    let mut rest = members;
    loop {
        let (name, after) = json_text(rest.trim_start())?;
        let value = after.trim_start().strip_prefix(':')?.trim_start();
        let (value, after) = match json_text(value) {
            Some(text) => text,
            None => {
                let end =
                    value.find(|char: char| matches!(char, ',' | '}') || char.is_whitespace());
                value.split_at_checked(end?)?
            }
        };
        if name == "chunkIndex" {
            return Some(value);
        }
        rest = after.trim_start().strip_prefix(',')?;
    }
}

/// Splits off the JSON text at the start, without its quotes. Escapes are not decoded.
fn json_text(text: &str) -> Option<(&str, &str)> {
    let text = text.strip_prefix('"')?;
    let mut is_escaped = false;
    let end = text.find(|char| {
        let is_end = char == '"' && !is_escaped;
        is_escaped = char == '\\' && !is_escaped;
        is_end
    })?;
    Some((text.get(..end)?, text.get(end + 1..)?))
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::ChunkPosition::{self, First, Later, Unknown};

    const ID: &str = "7b0c6f0e-7a40-4f6a-9c5e-0d1f0a2b3c4d";

    #[test]
    fn position_is_read_from_each_form_of_the_drafts() {
        for (value, expected) in [
            (format!("h:{ID}:0:5:sha256:ab12"), First),
            (format!("h:{ID}:0:5:sha256:ab12:30"), First),
            (format!("d:{ID}:1"), Later),
            (format!("d:{ID}:4294967296:30"), Later),
            (format!("{ID}:0:5:ab12"), First),
            (format!("{ID}:4"), Later),
            (format!("{ID};0;5;ab12"), First),
            (format!("{ID};4"), Later),
            ("12;0;5;ab12".into(), First),
            ("0:5:4194304:1a2b3c4d".into(), First),
            ("3:5:4194304".into(), Later),
            (format!(r#"{{"messageId":"{ID}","chunkIndex":0,"totalChunks":5}}"#), First),
            (format!(r#" {{ "chunkIndex" : 12 , "messageId" : "{ID}" }} "#), Later),
            (r#"{"messageId":"\"chunkIndex\":7,\\","chunkIndex":0}"#.into(), First),
            (r#"{"chunkIndex":"3"}"#.into(), Later),
            (r#"{"chunkIndex":1,"chunkIndex":0}"#.into(), Later),
        ] {
            assert_eq!(ChunkPosition::parse(&value), expected, "{value}");
        }
    }

    #[test]
    fn other_values_are_unknown() {
        for value in [
            "",
            "0",
            "true",
            ":",
            "h",
            "h:",
            "d:x",
            "d:x:",
            "d:x:-1",
            "d:x:+1",
            "d:x: 1",
            "d:x:\u{661}",
            "x;y",
            "{",
            "{}",
            "{}:0",
            r#"{"chunkIndex"}"#,
            r#"{"chunkIndex":}"#,
            r#"{"chunkIndex":0"#,
            r#"{"chunkIndex":-1}"#,
            r#"{"chunkIndex":1.5}"#,
            r#"{"chunkIndex":1e9}"#,
            r#"{"chunkIndex":null}"#,
            r#"{"chunkIndex":[0]}"#,
            r#"{"nested":{"chunkIndex":1}}"#,
            r#"{"chunkindex":1}"#,
            r#"{"messageId":"chunkIndex"#,
            r#"{"messageId":"chunkIndex\"}"#,
            r#"["chunkIndex",1]"#,
        ] {
            assert_eq!(ChunkPosition::parse(value), Unknown, "{value}");
        }
    }

    #[test]
    fn long_values_are_read_to_their_index() {
        let long = "9".repeat(60_000);
        assert_eq!(ChunkPosition::parse(&format!("d:{long}:{long}")), Later);
        assert_eq!(ChunkPosition::parse(&format!("{ID}:{}", "0".repeat(60_000))), First);
        assert_eq!(ChunkPosition::parse(&"{".repeat(60_000)), Unknown);
        assert_eq!(ChunkPosition::parse(&r#"{"a":""#.repeat(10_000)), Unknown);
    }
}

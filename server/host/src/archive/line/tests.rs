use proptest::option;
use proptest::prelude::*;
use statestore_proto::hlc::NodeId;

use super::*;

fn token() -> impl Strategy<Value = FencingToken> {
    hlc("[^:\\x00]{1,60}").prop_map(FencingToken::new)
}

fn version() -> impl Strategy<Value = Version> {
    hlc("[^:\\p{Cc}]{1,60}").prop_map(Version::new)
}

fn hlc(node: &'static str) -> impl Strategy<Value = Hlc> {
    let node = node.prop_filter_map("a node id", |text| NodeId::new(&text).ok());
    (0..=WALL_MAX, any::<u64>(), node)
        .prop_map(|(wall, counter, node)| Hlc::new(UnixTime::from_millis(wall), counter, node))
}

fn bytes() -> impl Strategy<Value = Box<[u8]>> {
    let text = any::<String>().prop_map(|text| text.into_bytes().into());
    prop_oneof![text, prop::collection::vec(any::<u8>(), 0..80).prop_map(Into::into)]
}

fn expiry() -> impl Strategy<Value = RecordedExpiry> {
    (any::<u64>(), 1..=u64::MAX, any::<bool>()).prop_map(|(at, after, is_lease)| RecordedExpiry {
        at: UnixTime::from_millis(at),
        after: Expiry::from_millis(after).expect("not zero"),
        is_lease,
    })
}

fn entry() -> impl Strategy<Value = Entry> {
    let key = bytes().prop_filter("keys are not empty", |key| !key.is_empty());
    (key, bytes(), option::of(version()), option::of(token()), option::of(expiry()), any::<bool>())
        .prop_map(|(key, value, version, token, expires, persist)| Entry {
            key,
            stored: StoredValue { value, version, fencing_token: token, expires, persist },
        })
}

proptest! {
    #[test]
    fn decoded_line_equals_the_entry(entry in entry()) {
        let line = entry.encode();
        prop_assert_eq!(line.find('\n'), Some(line.len() - 1));
        let is_plain = |char: char| char == '\n' || !char.is_control();
        prop_assert!(line.chars().all(is_plain), "{}", line.escape_debug());
        prop_assert_eq!(Entry::decode(line.as_bytes()), Ok(entry));
    }

    #[test]
    fn decoded_line_equals_the_header(issued in option::of(version()), keys in any::<Option<u64>>(), is_whole: bool) {
        let source = if is_whole { Source::Directory } else { Source::Requests };
        let header = Header { source, issued, keys };
        prop_assert_eq!(Header::decode(header.encode().as_bytes()), Ok(header));
    }

    #[test]
    fn line_that_was_cut_short_is_rejected(entry in entry(), at in any::<prop::sample::Index>()) {
        let line = entry.encode();
        let whole = line.trim_end().len();
        prop_assert!(Entry::decode(&line.as_bytes()[..at.index(whole)]).is_err());
    }

    #[test]
    fn arbitrary_bytes_cause_no_panic(line in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = (Entry::decode(&line), Header::decode(&line));
    }
}

#[test]
fn text_is_readable_and_other_bytes_are_base64() {
    let entry = |key: &[u8], value: &[u8]| Entry {
        key: key.into(),
        stored: StoredValue {
            value: value.into(),
            version: None,
            fencing_token: None,
            expires: None,
            persist: false,
        },
    };
    for (key, value, line) in [
        ("grün".as_bytes(), &b"21"[..], r#"{"key":"grün","value":"21"}"#),
        (b"k", &[0xff], r#"{"key":"k","value_base64":"/w=="}"#),
        (b"a\nb", b"", r#"{"key_base64":"YQpi","value":""}"#),
        ("\u{9b}".as_bytes(), b"\"", r#"{"key_base64":"wps=","value":"\""}"#),
        ("\u{202e}".as_bytes(), b"", r#"{"key":"\u202e","value":""}"#),
    ] {
        assert_eq!(entry(key, value).encode().trim_end(), line);
    }
}

#[test]
fn error_contains_the_reason_and_nothing_of_the_line() {
    let secret = "hush";
    for (line, what) in [
        ("", "not a JSON object"),
        (r#"["k",null,"hush"]"#, "not a JSON object"),
        (r#"{"key":"hush""#, "cut short"),
        (r#"{"key":"hush","value":hush}"#, "column"),
        (r#"{"value":"hush"}"#, "neither key nor key_base64"),
        (r#"{"key":"hush"}"#, "neither value nor value_base64"),
        (r#"{"key":"k","key_base64":"aw==","value":"hush"}"#, "both key"),
        (r#"{"key":"k","value":"hush","value":"hush"}"#, "duplicate field `value`"),
        (r#"{"key":"","value":"hush"}"#, "empty"),
        (r#"{"key":7,"value":"hush"}"#, "column 8: invalid type, expected a string"),
        (r#"{"key":"k","value":{"hush":"hush"}}"#, "expected a string"),
        (r#"{"key":"k","value_base64":"hush!"}"#, "not Base64"),
        (r#"{"key":"k","value":"hush","version":"hush"}"#, "version is not a version"),
        (r#"{"key":"k","value":"","fencing_token":"1:hush:n"}"#, "fencing_token"),
        (
            r#"{"key":"k","value":"","version":"1:0:hush\u0001"}"#,
            "the node id of version contains a control character",
        ),
        (
            r#"{"key":"k","value":"","fencing_token":"1:0:hush\u0000"}"#,
            "the node id of fencing_token contains U+0000",
        ),
        (
            r#"{"key":"k","value":"","version":"253402300800000:0:n"}"#,
            "version is after the year 9999",
        ),
        (r#"{"key":"k","value":"","expires":"hush, expected hush"}"#, "an object with at"),
        (r#"{"key":"k","value":"","expires":{"at":1}}"#, "missing field `after`"),
        (r#"{"key":"k","value":"","expires":{"at":1,"after":0}}"#, "nonzero"),
        (r#"{"key":"k","value":"","expires":{"at":-1,"after":1}}"#, "u64"),
        (r#"{"key":"k","value":"","expires":{"at":1,"after":1,"hush":1}}"#, "`lease`"),
        (r#"{"key":"k","value":"","persist":"hush"}"#, "a boolean"),
        (r#"{"key":"k","value":"","hush":1}"#, "one of `key`"),
    ] {
        let error = Entry::decode(line.as_bytes()).unwrap_err();
        assert!(error.contains(what) && !error.contains(secret), "{line}: {error}");
    }
    let last = r#"{"key":"k","value":"","version":"253402300799999:0:n"}"#;
    assert!(Entry::decode(last.as_bytes()).is_ok());
    for (line, what) in [
        ("{}", FORMAT),
        (r#"{"format":"statestore-dump"}"#, "unknown format_version"),
        (r#"{"format":"statestore-dump","format_version":1}"#, "from"),
        (
            r#"{"format":"statestore-dump","format_version":1,"from":"hush"}"#,
            "`directory` or `requests`",
        ),
        (
            r#"{"format":"statestore-dump","format_version":1,"from":"requests","issued":""}"#,
            "issued",
        ),
    ] {
        let Err(HeaderError::Invalid(error)) = Header::decode(line.as_bytes()) else {
            panic!("{line}");
        };
        assert!(error.contains(what) && !error.contains(secret), "{line}: {error}");
    }
    let later = br#"{"format":"statestore-dump","format_version":2,"hush":1}"#;
    assert_eq!(Header::decode(later), Err(HeaderError::FormatVersion(2)));
}

#[test]
fn lines_are_numbered_and_limited() {
    let mut lines = Lines::new(&b"a\n \n\nb"[..]);
    assert!(matches!(lines.next(), Ok(Some(b"a\n"))) && lines.number() == 1);
    assert!(matches!(lines.next(), Ok(Some(b"b"))) && lines.number() == 4);
    assert!(matches!(lines.next(), Ok(None)));
    let long = io::repeat(b'x');
    let mut lines = Lines::new(io::BufReader::new(long));
    assert!(matches!(lines.next(), Err(LineError::TooLong)) && lines.number() == 1);
}

//! A second parser for the grammar, simple enough to be trusted: an index that moves over the
//! bytes, a `Vec` of elements, numbers with 128 bits. It shares neither code nor technique with the
//! parser under test.

use statestore_proto::message::{
    Command, Condition, Expiry, Notification, Operand, Refusal, Reply, RequestKind, ServiceError,
};
use statestore_proto::resp::Frame;

/// The elements of a payload that is exactly one flat array of blob strings.
pub(super) fn array(payload: &[u8]) -> Option<Vec<&[u8]>> {
    let mut at = 0;
    let count = number_line(payload, b'*', &mut at)?;
    let mut elements = Vec::new();
    while (elements.len() as u128) < count {
        elements.push(blob(payload, &mut at)?);
    }
    (at == payload.len()).then_some(elements)
}

/// The keys of a page, and its token.
type Page<'a> = (Vec<&'a [u8]>, Option<&'a [u8]>);

/// The page that a payload is, without further bytes.
pub(super) fn page(payload: &[u8]) -> Option<Page<'_>> {
    let mut at = 0;
    let parts = number_line(payload, b'*', &mut at).filter(|parts| [1, 2].contains(parts))?;
    let count = number_line(payload, b'*', &mut at)?;
    let mut keys = Vec::new();
    while (keys.len() as u128) < count {
        keys.push(blob(payload, &mut at)?);
    }
    let token = if parts == 2 { Some(blob(payload, &mut at)?) } else { None };
    (at == payload.len()).then_some((keys, token))
}

/// Writes these elements in their canonical form.
pub(super) fn write_array(elements: &[&[u8]]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", elements.len()).into_bytes();
    for element in elements {
        out.extend(format!("${}\r\n", element.len()).bytes());
        out.extend(*element);
        out.extend(b"\r\n");
    }
    out
}

/// The frame that a payload is, without further bytes.
pub(super) fn frame(payload: &[u8]) -> Option<Frame<&[u8]>> {
    if payload == b"$-1\r\n" {
        return Some(Frame::Null);
    }
    if payload == b"-1\r\n" {
        return Some(Frame::Integer(-1));
    }
    match payload.first()? {
        b'$' => {
            let mut at = 0;
            let content = blob(payload, &mut at)?;
            (at == payload.len()).then_some(Frame::Blob(content))
        }
        b'+' => one_line(payload[1..].strip_suffix(b"\r\n")?).map(Frame::Simple),
        b':' => integer(payload[1..].strip_suffix(b"\r\n")?).map(Frame::Integer),
        b'-' => error_text(payload).map(Frame::Error),
        _ => None,
    }
}

/// The request of a payload, or the error with which a store refuses it.
pub(super) fn request(payload: &[u8], upper_only: bool) -> Result<Command<&[u8]>, Refusal> {
    let spelled =
        |bytes: &[u8]| if upper_only { bytes.to_vec() } else { bytes.to_ascii_uppercase() };
    let elements = array(payload).ok_or(Refusal::Syntax)?;
    let verb = elements.first().map(|verb| spelled(verb)).ok_or(Refusal::WrongArity)?;
    let arity = match verb.as_slice() {
        b"GET" | b"DEL" => 2..=2,
        b"VDEL" => 3..=3,
        b"KEYNOTIFY" => 2..=3,
        b"SET" => 3..=7,
        _ => return Err(Refusal::UnknownCommand),
    };
    if !arity.contains(&elements.len()) {
        return Err(Refusal::WrongArity);
    }
    let key = elements[1];
    let command = match (verb.as_slice(), elements.get(2)) {
        (b"GET", _) => Command::Get { key },
        (b"DEL", _) => Command::Del { key },
        (b"VDEL", Some(&value)) => Command::VDel { key, value },
        (b"SET", Some(&value)) => {
            let (condition, expiry) = options(&elements[3..], spelled).ok_or(Refusal::Syntax)?;
            Command::Set { key, value, condition, expiry }
        }
        (_, None) => Command::Watch { key },
        (_, Some(option)) if spelled(option) == b"STOP" => Command::Unwatch { key },
        _ => return Err(Refusal::Syntax),
    };
    if key.is_empty() { Err(Refusal::EmptyKey) } else { Ok(command) }
}

/// The options of SET: at most one condition and one PX, in any order.
fn options<'a>(
    words: &[&'a [u8]],
    spelled: impl Fn(&[u8]) -> Vec<u8>,
) -> Option<(Condition<&'a [u8]>, Option<Expiry>)> {
    let is_option = |word: &[u8]| [&b"NX"[..], b"NEX", b"PX"].contains(&spelled(word).as_slice());
    let (mut conditions, mut expiries) = (Vec::new(), Vec::new());
    let mut index = 0;
    while index < words.len() {
        let next = words.get(index + 1).copied();
        match spelled(words[index]).as_slice() {
            b"NX" => conditions.push(Condition::IfAbsent),
            b"NEX" => match next.filter(|next| !is_option(next)) {
                Some(next) => {
                    conditions.push(Condition::IfAbsentOrEqualTo(Operand::new(next)?));
                    index += 1;
                }
                None => conditions.push(Condition::IfAbsentOrEqual),
            },
            b"PX" => {
                let millis = u64::try_from(number(next?)?).ok()?;
                expiries.push(Expiry::from_millis(millis)?);
                index += 1;
            }
            _ => return None,
        }
        index += 1;
    }
    if conditions.len() > 1 || expiries.len() > 1 {
        return None;
    }
    Some((conditions.pop().unwrap_or_default(), expiries.pop()))
}

/// The reply of a payload to a request of this kind.
pub(super) fn reply(payload: &[u8], kind: RequestKind) -> Option<Reply<&[u8]>> {
    let is = |kinds: &[RequestKind]| kinds.contains(&kind);
    let (get, set, del, vdel) =
        (RequestKind::Get, RequestKind::Set, RequestKind::Del, RequestKind::VDel);
    let (watch, unwatch) = (RequestKind::Watch, RequestKind::Unwatch);
    match frame(payload)? {
        Frame::Error(text) => ServiceError::from_text(text).map(Reply::Error),
        Frame::Simple(text) => (text == b"OK" && is(&[set, watch, unwatch])).then_some(Reply::Done),
        Frame::Integer(-1) => is(&[set, vdel]).then_some(Reply::NotApplied),
        Frame::Integer(0) if is(&[unwatch]) => Some(Reply::NotWatched),
        Frame::Integer(0) => is(&[del, vdel]).then_some(Reply::NothingRemoved),
        Frame::Integer(1) => is(&[del, vdel]).then_some(Reply::Removed),
        Frame::Integer(_) => None,
        Frame::Blob(value) => is(&[get]).then_some(Reply::Value(value)),
        Frame::Null => is(&[get]).then_some(Reply::Absent),
    }
}

/// The change in a notification.
pub(super) fn notification(payload: &[u8]) -> Option<Notification<&[u8]>> {
    let elements = array(payload)?;
    let head = elements.get(..elements.len().min(3))?.join(&b' ');
    match (elements.len(), head.as_slice()) {
        (2, b"NOTIFY DELETE" | b"NOTIFY DEL") => Some(Notification::Deleted),
        (4, b"NOTIFY SET VALUE") => elements.last().copied().map(Notification::Set),
        _ => None,
    }
}

/// Decimal digits, at least one. Saturation is harmless: every limit is far below 128 bits.
pub(super) fn number(digits: &[u8]) -> Option<u128> {
    if digits.is_empty() {
        return None;
    }
    let mut number = 0_u128;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        number = number.saturating_mul(10).saturating_add(u128::from(digit - b'0'));
    }
    Some(number)
}

/// The blob string at `at`, which moves to its end.
fn blob<'a>(payload: &'a [u8], at: &mut usize) -> Option<&'a [u8]> {
    let len = number_line(payload, b'$', at)?;
    let end = *at as u128 + len;
    if end + 2 > payload.len() as u128 {
        return None;
    }
    let content = &payload[*at..usize::try_from(end).ok()?];
    *at += content.len() + 2;
    (payload[*at - 2] == b'\r' && payload[*at - 1] == b'\n').then_some(content)
}

/// The number between `marker` and CRLF at `at`, which moves to their end.
fn number_line(payload: &[u8], marker: u8, at: &mut usize) -> Option<u128> {
    if payload.get(*at) != Some(&marker) {
        return None;
    }
    let from = *at + 1;
    let mut to = from;
    while payload.get(to).is_some_and(|byte| *byte != b'\r') {
        to += 1;
    }
    if payload.get(to + 1) != Some(&b'\n') {
        return None;
    }
    *at = to + 2;
    // A number that exceeds 64 bits cannot match any payload. Refusing it here prevents an overflow
    // in the caller.
    number(&payload[from..to]).filter(|number| *number <= u128::from(u64::MAX))
}

fn integer(text: &[u8]) -> Option<i64> {
    let (sign, digits) = match text.strip_prefix(b"-") {
        Some(digits) => (-1, digits),
        None => (1, text),
    };
    i64::try_from(sign * i128::try_from(number(digits)?).ok()?).ok()
}

/// `-ERR`, then either nothing, or a blank and a line. The colon before the blank and the end of
/// the line are optional.
fn error_text(payload: &[u8]) -> Option<&[u8]> {
    let line = one_line(payload.strip_suffix(b"\r\n").unwrap_or(payload))?;
    let rest = line.strip_prefix(b"-ERR")?;
    let rest = rest.strip_prefix(b":").unwrap_or(rest);
    if rest.is_empty() { Some(rest) } else { rest.strip_prefix(b" ") }
}

fn one_line(text: &[u8]) -> Option<&[u8]> {
    (!text.contains(&b'\r') && !text.contains(&b'\n')).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn array_accepts_only_complete_arrays_of_blob_strings() {
        let two = b"*2\r\n$3\r\nGET\r\n$4\r\na\r\nb\r\n".as_slice();
        assert_eq!(array(two), Some(vec![b"GET".as_slice(), b"a\r\nb"]));
        assert_eq!(array(b"*0\r\n"), Some(vec![]));
        assert_eq!(array(b"*01\r\n$000\r\n\r\n"), Some(vec![b"".as_slice()]));
        assert_eq!(write_array(&[b"GET", b"a\r\nb"]), two);
        for wrong in [
            b"".as_slice(),
            b"*",
            b"*\r\n",
            b"*1\r\n",
            b"*1\r\n$1\r\nab\r\n",
            b"*1\r\n$2\r\na\r\n",
            b"*1\r\n$1\r\na\r\n\n",
            b"*1\r\n$1\r\na\n\r",
            b"*1\n$1\na\n",
            b"*+1\r\n$1\r\na\r\n",
            b"*-1\r\n",
            b"*1\r\n*0\r\n",
            b"*18446744073709551616\r\n",
            b"*340282366920938463463374607431768211457\r\n$1\r\na\r\n",
        ] {
            assert_eq!(array(wrong), None, "{}", wrong.escape_ascii());
        }
    }

    #[test]
    fn frame_parses_each_type_and_refuses_malformed_ones() {
        assert_eq!(frame(b"+OK\r\n"), Some(Frame::Simple(b"OK".as_slice())));
        assert_eq!(frame(b"$-1\r\n"), Some(Frame::Null));
        assert_eq!(frame(b"$0\r\n\r\n"), Some(Frame::Blob(b"".as_slice())));
        assert_eq!(frame(b"-1\r\n"), Some(Frame::Integer(-1)));
        assert_eq!(frame(b":-9223372036854775808\r\n"), Some(Frame::Integer(i64::MIN)));
        assert_eq!(frame(b":9223372036854775808\r\n"), None);
        for text in [b"-ERR a b\r\n".as_slice(), b"-ERR a b", b"-ERR: a b\r\n"] {
            assert_eq!(frame(text), Some(Frame::Error(b"a b".as_slice())));
        }
        for wrong in
            [b"-1".as_slice(), b"$-2\r\n", b":+1\r\n", b"+a\rb\r\n", b"-ERRa\r\n", b"-ERR a\r"]
        {
            assert_eq!(frame(wrong), None, "{}", wrong.escape_ascii());
        }
    }

    #[test]
    fn request_parses_options_and_reports_the_refusal() {
        let ask = |words: &[&str], upper| {
            let words: Vec<_> = words.iter().map(|word| word.as_bytes()).collect();
            request(&write_array(&words), upper).map(|command| command.map(<[u8]>::to_vec))
        };
        let (key, value) = (b"k".to_vec(), b"v".to_vec());
        assert_eq!(ask(&["get", "k"], false), Ok(Command::Get { key: key.clone() }));
        assert_eq!(ask(&["get", "k"], true), Err(Refusal::UnknownCommand));
        assert_eq!(
            ask(&["SET", "k", "v", "PX", "5", "NEX"], true),
            Ok(Command::Set {
                key,
                value,
                condition: Condition::IfAbsentOrEqual,
                expiry: Expiry::from_millis(5)
            })
        );
        assert_eq!(ask(&["SET", "k", "v", "PX", "0"], true), Err(Refusal::Syntax));
        assert_eq!(ask(&["SET", "k", "v", "NX", "NEX"], true), Err(Refusal::Syntax));
        assert_eq!(ask(&["SET", "k", "v", "NEX", "nx"], true), Err(Refusal::Syntax));
        assert_eq!(ask(&["KEYNOTIFY", "k", "START"], true), Err(Refusal::Syntax));
        assert_eq!(ask(&["GET"], true), Err(Refusal::WrongArity));
        assert_eq!(ask(&["GET", ""], true), Err(Refusal::EmptyKey));
    }

    #[test]
    fn reply_fits_its_command_and_notification_has_an_exact_form() {
        assert_eq!(reply(b":0\r\n", RequestKind::Del), Some(Reply::NothingRemoved));
        assert_eq!(reply(b":0\r\n", RequestKind::Unwatch), Some(Reply::NotWatched));
        assert_eq!(reply(b":0\r\n", RequestKind::Get), None);
        assert_eq!(reply(b":2\r\n", RequestKind::Del), None);
        let set = write_array(&[b"NOTIFY", b"SET", b"VALUE", b"v"]);
        assert_eq!(notification(&set), Some(Notification::Set(b"v".as_slice())));
        assert_eq!(notification(&write_array(&[b"NOTIFY", b"DEL"])), Some(Notification::Deleted));
        assert_eq!(notification(&write_array(&[b"NOTIFY", b"DEL", b""])), None);
        assert_eq!(notification(&write_array(&[b"NOTIFY DEL", b""])), None);
    }
}

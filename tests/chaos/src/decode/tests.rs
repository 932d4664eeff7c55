//! Decodes the golden vectors and random bytes.

use proptest::prelude::*;
use statestore_testkit::vectors::Vectors;

use super::*;

fn vectors(file: &str) -> Vectors {
    Vectors::read(file).unwrap_or_else(|error| panic!("{error}"))
}

fn decode(bytes: &[u8]) -> Decoded {
    Decoder { after: None, values: true }.decode(bytes, None)
}

fn single(bytes: &[u8]) -> Message {
    let read = decode(bytes);
    assert_eq!(read.error, None, "{}", bytes.escape_ascii());
    assert_eq!(read.messages.len(), 1);
    read.messages.into_iter().next().unwrap()
}

fn field<'a>(message: &'a Message, name: &str) -> Option<&'a str> {
    let found = message.fields.iter().find(|(other, _)| *other == name);
    found.map(|(_, value)| &**value)
}

fn seen(text: &[u8]) -> String {
    one_line(text).into_owned()
}

#[test]
fn request_vectors_are_described() {
    let decoder = Decoder { after: None, values: true };
    vectors("requests.txt").run(60, |case| {
        let payload = case.bytes("payload")?;
        let message = decoder.request(&payload)?;
        same(field(&message, "verb"), Some(case.text("verb")?))?;
        same(field(&message, "key"), Some(&*seen(&case.bytes("key")?)))?;
        let value = field(&message, "value").or_else(|| field(&message, "if it has"));
        match case.optional_bytes("value")? {
            Some(bytes) => same(value.map(|value| value.starts_with(&seen(&bytes))), Some(true))?,
            None => same(value, None)?,
        }
        let px = case.optional("px")?.map(|px| format!("after {} ms", px));
        same(field(&message, "expires").map(ToOwned::to_owned), px)?;
        let condition = match case.text("condition") {
            Ok("absent") => Some("NX:"),
            Ok("equal" | "equal-to") => Some("NEX:"),
            _ => None,
        };
        same(
            field(&message, "condition").map(|text| text.split(' ').next().unwrap_or_default()),
            condition,
        )?;
        prefixes(&payload)
    });
}

#[test]
fn invalid_request_is_rejected_with_its_position() {
    let decoder = Decoder { after: None, values: true };
    vectors("requests-refused.txt").run(20, |case| {
        if case.text("case")? == "any" {
            let error = decoder.request(&case.bytes("payload")?).err().ok_or("no error")?;
            same(error.contains(&format!("at byte {}", case.text("at")?)), true)?;
        }
        Ok(())
    });
}

#[test]
fn meaning_of_reply_depends_on_command() {
    let all = vectors("replies.txt");
    all.run(20, |case| {
        let payload = case.bytes("payload")?;
        // The same bytes occur in several lines, with different meanings.
        let same_bytes =
            all.cases().iter().filter(|other| other.bytes("payload").as_ref() == Ok(&payload));
        let verbs: Vec<&str> = same_bytes
            .flat_map(|other| match other.text("commands").unwrap_or_default() {
                "any" => vec!["GET", "SET", "DEL", "VDEL", "KEYNOTIFY", "KEYNOTIFY STOP", "SCAN"],
                list => list.split(',').collect(),
            })
            .collect();
        for kind in RequestKind::ALL {
            let decoder = Decoder { after: Some(*kind), values: true };
            let read = decoder.reply(&payload);
            // These files contain no pages, so after SCAN only errors are valid.
            same(read.is_ok(), verbs.contains(&&*kind.to_string()))?;
            if let (Ok(message), Some(text)) = (read, case.optional_bytes("text")?) {
                let means = field(&message, "means").unwrap_or_default();
                same(means.contains(&seen(&text)), true)?;
            }
        }
        let all = Decoder { after: None, values: false }.reply(&payload)?;
        let means = field(&all, "means").unwrap_or_default();
        same(verbs.len() == 7, means.contains("after any command"))?;
        prefixes(&payload)
    });
    vectors("replies-refused.txt").run(20, |case| {
        let payload = case.bytes("payload")?;
        let decoder = Decoder { after: None, values: true };
        // Some are valid replies to other commands.
        if case.text("problem")? != "unexpected" {
            same(decoder.reply(&payload).is_err(), true)?;
        }
        prefixes(&payload)
    });
}

#[test]
fn kind_of_input_is_detected() {
    vectors("notifications.txt").run(3, |case| {
        let message = single(&case.bytes("payload")?);
        same(&*message.title, "a notification")?;
        if let Some(value) = case.optional_bytes("value")? {
            let shown = field(&message, "value").unwrap_or_default();
            same(shown.starts_with(&seen(&value)), true)?;
        }
        prefixes(&case.bytes("payload")?)
    });
    vectors("pages.txt").run(3, |case| {
        let message = single(&case.bytes("payload")?);
        let keys = message.fields.iter().filter(|(name, _)| *name == "key").map(|(_, key)| &**key);
        let wanted = case.optional("keys")?.unwrap_or_default();
        let wanted: Vec<&str> =
            wanted.split(' ').filter(|key| !key.is_empty() && *key != "\\e").collect();
        same(keys.count(), wanted.len())?;
        prefixes(&case.bytes("payload")?)
    });
    vectors("scans.txt").run(3, |case| {
        let message = single(&case.bytes("payload")?);
        same(field(&message, "verb"), Some("SCAN"))?;
        same(field(&message, "pattern"), Some(&*seen(&case.bytes("pattern")?)))?;
        same(field(&message, "token").is_some(), case.optional_bytes("token")?.is_some())
    });
    vectors("topics-received.txt").run(5, |case| {
        let topic = case.bytes("topic")?;
        let read = text::topic(&topic);
        let Some(client) = case.optional_bytes("client")? else {
            let is_one = read.is_ok_and(|message| message.title.contains("notifications"));
            return same(is_one, false);
        };
        let message = read?;
        same(field(&message, "to"), Some(&*seen(&client)))?;
        same(field(&message, "key"), Some(&*seen(&case.bytes("key")?)))
    });
    vectors("topics-response.txt").run(5, |case| {
        let topic = case.bytes("topic")?;
        if let (Ok(message), Some(client)) = (text::topic(&topic), case.optional_bytes("client")?) {
            same(field(&message, "client"), std::str::from_utf8(&client).ok())?;
        }
        Ok(())
    });
    vectors("hlc.txt").run(10, |case| {
        let message = text::clock(&case.bytes("text")?)?;
        same(
            field(&message, "milliseconds"),
            Some(case.text("wall")?.trim_start_matches('0'))
                .map(|wall| if wall.is_empty() { "0" } else { wall }),
        )?;
        same(field(&message, "node"), std::str::from_utf8(&case.bytes("node")?).ok())
    });
    vectors("hlc-refused.txt")
        .run(10, |case| same(text::clock(&case.bytes("text")?).is_err(), true));
    let page = single(b"001696374425000:00000:CLIENT");
    assert_eq!(field(&page, "wall"), Some("2023-10-03T23:07:05.000Z"));
    assert_eq!(single(REQUEST_TOPIC).title, "the topic of requests");
}

const REQUEST_TOPIC: &[u8] = b"statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/command/invoke";

fn same<T: PartialEq + std::fmt::Debug>(found: T, wanted: T) -> Result<(), String> {
    if found == wanted { Ok(()) } else { Err(format!("{found:?} instead of {wanted:?}")) }
}

/// Checks that each prefix is decoded or rejected.
fn prefixes(payload: &[u8]) -> Result<(), String> {
    for len in 0..payload.len() {
        let read = decode(&payload[..len]);
        same(read.error.is_some() || !read.messages.is_empty(), true)?;
    }
    Ok(())
}

/// Encodes a PUBLISH.
fn publish(topic: &[u8], properties: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    body.extend(u16::try_from(topic.len()).unwrap().to_be_bytes());
    body.extend(topic);
    body.extend([0, 7, u8::try_from(properties.len()).unwrap()]);
    body.extend(properties);
    body.extend(payload);
    let len = match u8::try_from(body.len()) {
        Ok(len) if len < 0x80 => vec![len],
        _ => vec![
            u8::try_from(body.len() % 128).unwrap() | 0x80,
            u8::try_from(body.len() / 128).unwrap(),
        ],
    };
    [&[0x32][..], &len, &body].concat()
}

fn user(name: &str, value: &str) -> Vec<u8> {
    let mut bytes = vec![0x26];
    for text in [name, value] {
        bytes.extend(u16::try_from(text.len()).unwrap().to_be_bytes());
        bytes.extend(text.as_bytes());
    }
    bytes
}

#[test]
fn sequence_of_packets_is_described() {
    let set = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$6\r\nsecret\r\n";
    let request = [user("__ts", "1696374425000:0:CLIENT"), user("__srcId", "lamp")].concat();
    let reply = [user("__stat", "200"), b"\x09\0\x01x".to_vec()].concat();
    let notify =
        b"clients/statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/6C616D70/command/notify/6B";
    let all = [
        publish(REQUEST_TOPIC, &request, set),
        vec![0x40, 2, 0, 7],
        publish(b"clients/lamp/r", &reply, b"+OK\r\n"),
        publish(notify, &user("__ts", "1:0:s"), b"*2\r\n$6\r\nNOTIFY\r\n$3\r\nDEL\r\n"),
        publish(b"weather", &[], b"wet"),
        vec![0xc0, 0],
    ]
    .concat();
    let hidden = Decoder::default().decode(&all, None);
    assert_eq!(hidden.error, None);
    let titles: Vec<&str> = hidden.messages.iter().map(|message| &*message.title).collect();
    assert_eq!(titles, ["PUBLISH", "PUBACK", "PUBLISH", "PUBLISH", "PUBLISH", "PINGREQ"]);
    let text: String = hidden.messages.iter().map(Message::text).collect();
    assert!(!text.contains("secret") && !text.contains("wet"), "{text}");
    let request = &hidden.messages[0];
    assert_eq!((field(request, "verb"), field(request, "key")), (Some("SET"), Some("k")));
    assert_eq!(field(request, "value"), Some("6 bytes"));
    assert!(field(request, "property").unwrap().contains("2023-10-03T23:07:05.000Z, counter 0"));
    assert!(text.contains("after SET: stored"), "{text}");
    assert_eq!(field(&hidden.messages[3], "to"), Some("lamp"));
    assert!(field(&hidden.messages[3], "change").unwrap().contains("gone"));
    let shown = Decoder { after: None, values: true }.decode(&all, None);
    assert_eq!(field(&shown.messages[0], "value"), Some("secret (6 bytes)"));
    // A truncated sequence is described up to the last complete packet.
    for len in 1..all.len() {
        let read = Decoder::default().decode(&all[..len], Some(Kind::Packets));
        assert_eq!(read.messages[..], hidden.messages[..read.messages.len()]);
        assert!(read.error.is_some() || read.messages.len() < 6);
    }
    let json = request.json();
    assert_eq!(json["property"].as_array().map(Vec::len), Some(2), "{json}");
}

#[test]
fn number_of_fields_is_limited() {
    let mut body = vec![0, 7, 0];
    (0..50_000).for_each(|_| body.extend([0, 1, b'a', 0]));
    let mut packet = vec![0x82];
    let mut len = body.len();
    while len > 0x7f {
        packet.push(u8::try_from(len % 0x80).unwrap() | 0x80);
        len /= 0x80;
    }
    packet.push(u8::try_from(len).unwrap());
    packet.extend(body);
    let message = single(&packet);
    assert_eq!((&*message.title, message.fields.len()), ("SUBSCRIBE", FIELDS_MAX + 1));
    assert_eq!(field(&message, "more"), Some("not shown"));
}

#[test]
fn hexadecimal_digits_are_bytes() {
    let get = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n";
    let digits: String = get.iter().map(|byte| format!("{byte:02x}")).collect();
    let spaced: Vec<String> = get.iter().map(|byte| format!("{byte:02X}")).collect();
    for typed in
        [digits.clone(), format!("0x{digits}"), spaced.join(" "), spaced.join(":"), digits + "\n"]
    {
        assert_eq!(parse_input(typed.as_bytes()), get, "{typed}");
    }
    assert_eq!(parse_input(b"*2\\r\\n$3\\r\\nGET\\r\\n$1\\r\\nk\\r\\n"), get);
    assert_eq!(parse_input(b":-1"), b":-1\r\n");
    for clock in [&b"1696374425000:0:ab"[..], b"1696374425000:10:ab"] {
        assert_eq!(parse_input(clock), clock);
    }
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes: Vec<u8>, head in 0..9_usize) {
        let head: &[u8] = [&b""[..], b"*", b"$", b"-", b"clients/", b"1:0:", b"\x30", b"\x10", b"*1\r\n*"][head];
        let bytes = [head, &bytes].concat();
        let _ = parse_input(&bytes);
        for kind in [None, Some(Kind::Request), Some(Kind::Reply), Some(Kind::Notification), Some(Kind::Topic), Some(Kind::Clock), Some(Kind::Packets)] {
            let read = Decoder { after: None, values: true }.decode(&bytes, kind);
            prop_assert!(read.error.is_some() || !read.messages.is_empty());
            for message in read.messages {
                let lines = 1 + message.fields.len();
                prop_assert_eq!(message.text().lines().count(), lines);
            }
        }
    }
}

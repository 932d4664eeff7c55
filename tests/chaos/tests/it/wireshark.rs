//! Runs the Wireshark dissector in tshark on traffic of real clients and a real store.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use statestore_server::{Error, WatchEvent};
use statestore_testkit::vectors::Vectors;

use crate::support::{Scratch, Store};

/// Bytes of one direction of one connection.
#[derive(Clone, Debug)]
struct Chunk {
    connection: u16,
    is_to_broker: bool,
    bytes: Vec<u8>,
}

type Chunks = Arc<Mutex<Vec<Chunk>>>;

/// Starts a relay to the port of a broker. It records all bytes.
fn record(broker: u16) -> (u16, Chunks) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = listener.local_addr().expect("its address").port();
    let chunks = Chunks::default();
    let recorded = Arc::clone(&chunks);
    thread::spawn(move || {
        for (connection, client) in (0..).zip(listener.incoming()) {
            let Ok(client) = client else { return };
            let server = TcpStream::connect((Ipv4Addr::LOCALHOST, broker)).expect("the broker");
            for is_to_broker in [true, false] {
                let (from, to) = if is_to_broker { (&client, &server) } else { (&server, &client) };
                let (mut from, mut to) =
                    (from.try_clone().expect("it"), to.try_clone().expect("it"));
                let _ = to.set_nodelay(true);
                let recorded = Arc::clone(&recorded);
                thread::spawn(move || {
                    let mut buffer = [0; 4_096];
                    while let Ok(len) = from.read(&mut buffer) {
                        let bytes = buffer[..len].to_vec();
                        if len == 0 {
                            break;
                        }
                        // Recorded before a reply is possible.
                        recorded.lock().unwrap().push(Chunk {
                            connection,
                            is_to_broker,
                            bytes: bytes.clone(),
                        });
                        if to.write_all(&bytes).is_err() {
                            break;
                        }
                    }
                    let _ = to.shutdown(std::net::Shutdown::Write);
                });
            }
        }
    });
    (port, chunks)
}

/// Returns a capture file with these chunks as IPv4 packets, without a link layer.
fn capture(chunks: &[Chunk]) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 1 << 18, 101] {
        file.extend(word.to_le_bytes());
    }
    let connections =
        chunks.iter().map(|chunk| chunk.connection).max().map_or(0, |last| usize::from(last) + 1);
    // Number of bytes of each connection to the broker and from it.
    let mut sent = vec![[0_u32; 2]; connections];
    let mut time = 0_u32;
    let mut packet =
        |connection: u16, is_to_broker: bool, [there, back]: [u32; 2], flags: u8, bytes: &[u8]| {
            let (client, broker) = (40_000 + connection, 1_883_u16);
            let (from, to) = if is_to_broker { (client, broker) } else { (broker, client) };
            let (seq, ack) = if is_to_broker { (there, back) } else { (back, there) };
            let mut tcp = Vec::new();
            tcp.extend(from.to_be_bytes());
            tcp.extend(to.to_be_bytes());
            tcp.extend(seq.to_be_bytes());
            tcp.extend(ack.to_be_bytes());
            tcp.extend([5 << 4, flags, 0xff, 0xff, 0, 0, 0, 0]);
            tcp.extend(bytes);
            let len = u16::try_from(20 + tcp.len()).expect("a short packet");
            let mut ip = vec![0x45, 0];
            ip.extend(len.to_be_bytes());
            ip.extend([0, 0, 0, 0, 64, 6, 0, 0]);
            let hosts = if is_to_broker { [1, 2] } else { [2, 1] };
            hosts.iter().for_each(|host| ip.extend([10, 0, 0, *host]));
            time += 1;
            for word in [1_700_000_000, time * 1_000, u32::from(len), u32::from(len)] {
                file.extend(word.to_le_bytes());
            }
            file.extend(ip);
            file.extend(tcp);
        };
    for (connection, sent) in (0..).zip(&mut sent) {
        packet(connection, true, [0, 0], 0x02, &[]);
        packet(connection, false, [1, 0], 0x12, &[]);
        *sent = [1, 1];
    }
    for Chunk { connection, is_to_broker, bytes } in chunks {
        let sent = &mut sent[usize::from(*connection)];
        packet(*connection, *is_to_broker, *sent, 0x18, bytes);
        sent[usize::from(!is_to_broker)] += u32::try_from(bytes.len()).expect("few");
    }
    file
}

fn test_name() -> String {
    thread::current().name().unwrap_or("a test").to_owned()
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("wireshark/statestore.lua")
}

/// Returns whether tshark 4.0 or later is installed.
fn has_tshark() -> bool {
    let Ok(output) = Command::new("tshark").arg("--version").output() else { return false };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let version = text.split_once("(Wireshark) ").and_then(|(_, rest)| rest.split('.').next());
    version.and_then(|version| version.parse().ok()).is_some_and(|version: u32| version >= 4)
}

/// Runs tshark with these options on a capture and returns its output. Without tshark, prints a
/// line and returns `None`.
fn tshark(file: &[u8], options: &[&str]) -> Option<String> {
    let name = format!("{}-{}.pcap", test_name().replace("::", "-"), options.len());
    let scratch = Scratch::new(&name, file);
    let mut command = Command::new("tshark");
    command.args(["-2", "-X"]).arg(format!("lua_script:{}", script().display()));
    // Without the settings of the user.
    command.env("HOME", std::env::temp_dir().join("no-such-home")).stdin(Stdio::null());
    if !has_tshark() {
        println!("{}: skipped, tshark 4 is not installed (apt-get install tshark)", test_name());
        return None;
    }
    let output = command.args(["-r", scratch.path()]).args(options).output().expect("tshark runs");
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{err}");
    assert!(!out.contains("Lua Error") && !err.to_lowercase().contains("lua:"), "{out}\n{err}");
    Some(out.into_owned())
}

const FIELDS: [&str; 8] =
    ["kind", "verb", "key", "verdict", "value_len", "ft", "version", "reason"];

/// Returns the fields of each message of the protocol, in the order of the capture.
fn messages(file: &[u8]) -> Option<Vec<[String; FIELDS.len()]>> {
    let mut options =
        vec!["-Y".to_owned(), "statestore".to_owned(), "-T".to_owned(), "json".to_owned()];
    options.extend(["-J".to_owned(), "statestore".to_owned(), "--no-duplicate-keys".to_owned()]);
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let json: serde_json::Value = serde_json::from_str(&tshark(file, &options)?).expect("JSON");
    let mut all = Vec::new();
    for frame in json.as_array().expect("frames") {
        let found = &frame["_source"]["layers"]["statestore"];
        let each = found.as_array().map_or_else(|| vec![found.clone()], Clone::clone);
        for message in each {
            all.push(FIELDS.map(|name| {
                let text = message[format!("statestore.{name}")].as_str();
                text.unwrap_or_default().to_owned()
            }));
        }
    }
    Some(all)
}

#[test]
fn fields_of_real_traffic_are_shown() {
    let store = Store::start();
    let (port, chunks) = record(store.port());
    // A new connection for each request, as the command `statestore` makes them.
    let client = || store.client(port);
    let token = client().set("k", "secret").wait().expect("a version");
    let fence = token.to_fencing_token();
    let token = token.to_string();
    client().set("k", "more").fencing_token(fence.clone()).wait().expect("a version");
    let error = client().set("k", "x").wait().expect_err("a fencing token is required");
    assert!(matches!(error, Error::Refused { .. }), "{error}");
    let found = client().get("k").wait().expect("a reply").expect("a value");
    assert_eq!(&found.value[..], b"more");
    assert!(client().get("other").wait().expect("a reply").is_none());
    let nx = client().set("k", "x").if_absent().expires_after(Duration::from_secs(9));
    assert!(nx.fencing_token(fence).wait().expect("a reply").is_none());
    let watcher = client();
    store.runtime.block_on(async {
        let mut watch = watcher.watch("w").await.expect("a watch");
        assert_eq!(watch.next().await, Some(WatchEvent::Live));
        client().set("w", "1").await.expect("a version");
        assert!(matches!(watch.next().await, Some(WatchEvent::Changed { .. })));
        watcher.shutdown().await;
    });
    let chunks = chunks.lock().unwrap().clone();
    let Some(shown) = messages(&capture(&chunks)) else { return };
    let text = |row: &[&str; FIELDS.len()]| row.map(ToOwned::to_owned);
    let rule = format!("the key is fenced by {token} and the request has no __ft");
    let expected = [
        text(&["request", "SET", "k", "", "6", "", "1.0", ""]),
        text(&["reply", "SET", "k", "done", "", "", "", ""]),
        text(&["request", "SET", "k", "", "4", &token, "1.0", ""]),
        text(&["reply", "SET", "k", "done", "", "", "", ""]),
        text(&["request", "SET", "k", "", "1", "", "1.0", ""]),
        text(&["reply", "SET", "k", "refused", "", "", "", &rule]),
        text(&["request", "GET", "k", "", "", "", "1.0", ""]),
        text(&["reply", "GET", "k", "value", "4", "", "", ""]),
        text(&["request", "GET", "other", "", "", "", "1.0", ""]),
        text(&["reply", "GET", "other", "absent", "", "", "", ""]),
        text(&["request", "SET", "k", "", "1", &token, "1.0", ""]),
        text(&["reply", "SET", "k", "not applied", "", "", "", ""]),
    ];
    assert_eq!(shown[..expected.len()], expected);
    let rest = &shown[expected.len()..];
    for row in [
        text(&["request", "KEYNOTIFY", "w", "", "", "", "1.0", ""]),
        text(&["reply", "KEYNOTIFY", "w", "registered", "", "", "", ""]),
        text(&["notification", "NOTIFY SET", "w", "", "1", "", "", ""]),
    ] {
        assert!(rest.contains(&row), "{row:?} is not in {rest:#?}");
    }
    // The result does not depend on the segments: each is split into three.
    let cut: Vec<Chunk> = chunks
        .iter()
        .flat_map(|chunk| {
            let parts = chunk.bytes.chunks(chunk.bytes.len().div_ceil(3));
            parts.map(|bytes| Chunk { bytes: bytes.to_vec(), ..chunk.clone() }).collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(messages(&capture(&cut)).as_ref(), Some(&shown));
    // Values are not shown, and each reply is linked to its request.
    let all = tshark(&capture(&chunks), &["-O", "statestore"]).expect("tshark is installed");
    assert!(!all.contains("secret") && all.contains("Request in: "), "{all}");
    let replies =
        tshark(&capture(&chunks), &["-Y", "statestore.verdict && !statestore.request_in"]);
    assert_eq!(replies.as_deref(), Some(""));
    let clocks = tshark(
        &capture(&chunks),
        &["-Y", "statestore.ts.node == \"StateStore\" && statestore.ts.wall"],
    );
    assert!(clocks.is_some_and(|lines| lines.contains("done after SET")));
}

#[test]
fn two_messages_in_one_segment_are_shown_separately() {
    let both = [
        publish(REQUEST, &[], b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n"),
        publish(REQUEST, &[], b"*2\r\n$3\r\nDEL\r\n$1\r\nb\r\n"),
    ];
    let file =
        capture(&[connect(), Chunk { connection: 0, is_to_broker: true, bytes: both.concat() }]);
    let Some(shown) = messages(&file) else { return };
    let verbs: Vec<&str> = shown.iter().map(|message| &*message[1]).collect();
    assert_eq!(verbs, ["GET", "DEL"]);
}

const REQUEST: &str = "statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/command/invoke";
const NOTIFY: &str =
    "clients/statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/6/command/notify/6b";

/// A CONNECT. Without it, Wireshark assumes another version of MQTT.
fn connect() -> Chunk {
    let bytes = b"\x10\x11\0\x04MQTT\x05\x02\0\x3c\0\0\x04lamp".to_vec();
    Chunk { connection: 0, is_to_broker: true, bytes }
}

fn publish(topic: &str, properties: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut body = u16::try_from(topic.len()).unwrap().to_be_bytes().to_vec();
    body.extend(topic.as_bytes());
    body.extend([0, 7, u8::try_from(properties.len()).unwrap()]);
    body.extend(properties);
    body.extend(payload);
    let mut packet = vec![0x32];
    let mut len = body.len();
    while len > 0x7f {
        packet.push(u8::try_from(len % 0x80).unwrap() | 0x80);
        len /= 0x80;
    }
    packet.push(u8::try_from(len).unwrap());
    packet.extend(body);
    packet
}

#[test]
fn invalid_payloads_and_clocks_cause_no_script_errors() {
    let mut chunks = vec![connect()];
    let mut add = |topic: &str, properties: &[u8], payload: &[u8]| {
        let bytes = publish(topic, properties, payload);
        chunks.push(Chunk { connection: 0, is_to_broker: true, bytes });
    };
    let stat = b"\x26\0\x06__stat\0\x03200";
    for file in
        ["requests-refused.txt", "replies-refused.txt", "notifications-refused.txt", "pages.txt"]
    {
        for case in Vectors::read(file).unwrap().cases() {
            let payload = case.bytes("payload").unwrap();
            for len in [payload.len(), payload.len() / 2] {
                add(REQUEST, &[], &payload[..len]);
                add(NOTIFY, &[], &payload[..len]);
                add("clients/lamp/r", stat, &payload[..len]);
            }
        }
    }
    for clock in
        ["", ":", "1:2", "99999999999999999999:0:a", "1:99999999999999999999999:\u{1}", "a:b:c"]
    {
        let mut properties = b"\x26\0\x04__ts\0".to_vec();
        properties.push(u8::try_from(clock.len()).unwrap());
        properties.extend(clock.as_bytes());
        add(REQUEST, &properties, b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n");
        add("clients/lamp/r", &[&properties[..], stat].concat(), b"+OK\r\n");
    }
    let Some(shown) = tshark(&capture(&chunks), &["-O", "statestore"]) else { return };
    assert!(shown.matches("State store protocol").count() >= chunks.len() - 1);
    assert!(shown.contains("No request, from byte"), "{shown}");
}

//! `serve --metrics-listen`: exact metrics in the text format of Prometheus, and a server that slow
//! and flooding clients do not block.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use statestore_testkit::brokers::Mosquitto;
use statestore_testkit::credentials::Certificates;
use statestore_testkit::process::HANGS;
use statestore_testkit::wire::raw::{Raw, RawRequest, array, unix_ms, words};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;

use crate::deployment::test_name;
use crate::process::{Running, run, statestore};

const SERVE: [&str; 5] = ["serve", "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"];

/// Values by series: name and labels in the text format.
type Samples = BTreeMap<String, f64>;

/// Starts a store. Returns it, its port for MQTT and its port for metrics.
fn start(options: &[&str]) -> (Running, u16, u16) {
    let store = Running::start(statestore().args(SERVE).args(options));
    let metrics = metrics_port(&store);
    let line = store.line();
    let port = line.split(';').next().and_then(|url| url.rsplit(':').next()?.parse().ok());
    (store, port.unwrap_or_else(|| panic!("{line:?}")), metrics)
}

fn metrics_port(store: &Running) -> u16 {
    let line = store.complaint();
    let address = line
        .strip_prefix("statestore: metrics on http://127.0.0.1:")
        .expect("the address of the metrics");
    address.strip_suffix("/metrics").and_then(|port| port.parse().ok()).expect("a port")
}

fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("a listener");
    stream.set_read_timeout(Some(HANGS)).expect("a time-out");
    stream
}

/// Sends these bytes. Returns status code, head and body of the response.
fn exchange(port: u16, request: &[u8]) -> (u16, String, String) {
    let mut stream = connect(port);
    // The server may respond before it has read the whole request.
    let _ = stream.write_all(request);
    let mut response = Vec::new();
    match stream.read_to_end(&mut response) {
        Err(error) if error.kind() != ErrorKind::ConnectionReset => panic!("{error}"),
        _ => {}
    }
    let response = String::from_utf8(response).expect("text");
    let (head, body) = response.split_once("\r\n\r\n").expect("a head");
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a code");
    (code, head.to_owned(), body.to_owned())
}

fn get(port: u16, path: &str) -> (u16, String, String) {
    get_with(port, path, "Host: localhost\r\n")
}

fn get_with(port: u16, path: &str, headers: &str) -> (u16, String, String) {
    exchange(port, format!("GET {path} HTTP/1.1\r\n{headers}\r\n").as_bytes())
}

/// Fetches all metrics, and checks their text format.
fn scrape(port: u16) -> Samples {
    let (code, head, body) = get(port, "/metrics");
    assert_eq!(code, 200, "{body}");
    assert!(head.contains("Content-Type: text/plain; version=0.0.4"), "{head}");
    assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
    parse(&body)
}

fn traffic(port: u16) -> Value {
    let (code, head, body) = get(port, "/traffic");
    assert_eq!(code, 200, "{body}");
    assert!(head.contains("Content-Type: application/json"), "{head}");
    serde_json::from_str(&body).expect("JSON")
}

fn is_name(text: &str) -> bool {
    let is_word = |char: char| char.is_ascii_lowercase() || char.is_ascii_digit() || char == '_';
    text.starts_with(|char: char| char.is_ascii_lowercase()) && text.chars().all(is_word)
}

/// Parses the text format 0.0.4: help and type of a family precede its samples, and each series
/// occurs once.
fn parse(text: &str) -> Samples {
    assert!(text.ends_with('\n'), "the last line ends with a line feed");
    let (mut family, mut kind, mut families) = ("", "", BTreeSet::new());
    let mut samples = Samples::new();
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, words) = help.split_once(' ').expect(line);
            assert!(is_name(name) && !words.is_empty() && families.insert(name), "{line}");
            (family, kind) = (name, "");
            continue;
        }
        if let Some(typed) = line.strip_prefix("# TYPE ") {
            let (name, value) = typed.split_once(' ').expect(line);
            assert!(name == family && kind.is_empty(), "{line}");
            assert!(["counter", "gauge", "histogram"].contains(&value), "{line}");
            assert_eq!(value == "counter", name.ends_with("_total"), "{line}");
            kind = value;
            continue;
        }
        let (series, value) = line.rsplit_once(' ').expect(line);
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        let rest = name.strip_prefix(family).expect(line);
        let is_histogram = ["_bucket", "_sum", "_count"].contains(&rest);
        assert_eq!((rest.is_empty(), is_histogram), (kind != "histogram", kind == "histogram"));
        let labels = labels.strip_suffix('}').expect(line);
        for label in labels.split(',').filter(|label| !label.is_empty()) {
            let (label, text) = label.split_once('=').expect(line);
            let text = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
            assert!(is_name(label) && text.is_some_and(|text| !text.contains('"')), "{line}");
        }
        let value: f64 = value.parse().expect(line);
        assert!(value >= 0.0 && samples.insert(series.to_owned(), value).is_none(), "{line}");
    }
    assert_histograms(&samples);
    samples
}

/// Asserts that buckets are cumulative, and that the last one contains all observations.
fn assert_histograms(samples: &Samples) {
    let names = samples.keys().filter_map(|series| series.strip_suffix("_count"));
    for name in names {
        let begin = format!("{name}_bucket{{le=\"");
        let buckets = samples.iter().filter_map(|(series, count)| {
            let bound = series.strip_prefix(&begin)?.strip_suffix("\"}")?;
            Some((bound.replace("+Inf", "inf").parse::<f64>().expect(series), *count))
        });
        let mut buckets: Vec<_> = buckets.collect();
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        assert!(buckets.len() > 10 && buckets.is_sorted_by(|a, b| a.1 <= b.1), "{buckets:?}");
        assert_eq!(buckets.last(), Some(&(f64::INFINITY, samples[&format!("{name}_count")])));
    }
}

#[test]
fn metrics_of_a_known_workload_are_exact() {
    let (_store, port, metrics) = start(&[]);
    let before = scrape(metrics);
    let mut raw = Raw::connect(port, "raw");
    assert_eq!(raw.command(&["SET", "k", "v"]), b"+OK\r\n");
    let again = RawRequest::deployed("raw", words(&["SET", "k", "w"]));
    assert_eq!(
        (raw.answer(&again), raw.answer(&again)),
        (b"+OK\r\n".to_vec(), b"+OK\r\n".to_vec())
    );
    raw.command(&["SET", "k", "x", "NX"]);
    raw.command(&["GET", "k"]);
    raw.command(&["GET", "none"]);
    raw.command(&["DEL", "none"]);
    raw.command(&["KEYNOTIFY", "k"]);
    raw.command(&["FLY"]);
    let unstamped = RawRequest::deployed("raw", words(&["SET", "k", "y"])).without("__ts");
    assert_eq!(raw.answer(&unstamped), b"-ERR missing timestamp\r\n");
    let samples = scrape(metrics);
    let expected: Samples = [
        (r#"verb="set",verdict="applied""#, 2.0),
        (r#"verb="set",verdict="repeated""#, 1.0),
        (r#"verb="set",verdict="not_applied""#, 1.0),
        (r#"verb="set",verdict="refused""#, 1.0),
        (r#"verb="get",verdict="applied""#, 1.0),
        (r#"verb="get",verdict="absent""#, 1.0),
        (r#"verb="del",verdict="absent""#, 1.0),
        (r#"verb="keynotify",verdict="applied""#, 1.0),
        (r#"verb="unknown",verdict="refused""#, 1.0),
    ]
    .map(|(labels, count)| (format!("statestore_requests_total{{{labels}}}"), count))
    .into();
    let counted = samples
        .iter()
        .filter(|(series, count)| series.starts_with("statestore_requests_total") && **count > 0.0);
    let counted: Samples = counted.map(|(series, count)| (series.clone(), *count)).collect();
    assert_eq!(counted, expected);
    for (series, count) in [
        ("statestore_refusals_total{reason=\"unknown_command\"}", 1.0),
        ("statestore_refusals_total{reason=\"missing_timestamp\"}", 1.0),
        ("statestore_refusals_total{reason=\"syntax\"}", 0.0),
        ("statestore_request_duration_seconds_count", 10.0),
        ("statestore_journal_commit_duration_seconds_count", 0.0),
        ("statestore_keys", 1.0),
        ("statestore_stored_bytes", 2.0),
        ("statestore_watches", 1.0),
        ("statestore_unanswered_requests", 0.0),
        ("statestore_broker_connections", 1.0),
        ("statestore_ready", 1.0),
    ] {
        assert_eq!(samples.get(series), Some(&count), "{series}");
    }
    let increase = |name: &str| samples[name] - before[name];
    assert!(increase("statestore_broker_received_bytes_total") > 10.0 * 100.0, "{samples:?}");
    assert!(increase("statestore_broker_sent_bytes_total") > 10.0 * 50.0, "{samples:?}");
}

#[test]
fn traffic_by_client_and_key_is_served_only_if_enabled() {
    let (_store, _, metrics) = start(&[]);
    let (code, _, body) = get(metrics, "/traffic");
    assert_eq!(code, 404);
    assert!(body.contains("/traffic if it is enabled"), "{body}");
    run(statestore().args(["serve", "--traffic"]))
        .fails(2, &["--traffic: it requires metrics-listen"]);

    let (_store, port, metrics) = start(&["--traffic"]);
    assert_eq!(traffic(metrics), json!({ "clients": [], "keys": [] }));
    let mut raw = Raw::connect(port, "raw");
    assert_eq!(raw.command(&["SET", "k", "v"]), b"+OK\r\n");
    raw.command(&["GET", "k"]);
    raw.command(&["GET", "none"]);
    raw.command(&["SCAN", "0"]);
    raw.command(&["FLY"]);
    let odd = [&b"GET"[..], b"\xff\n"];
    raw.answer(&RawRequest::deployed("raw", array(&odd)).without("__ts"));
    let behind = unix_ms() - 1_696_374_425_000;
    let mut odd = Raw::connect(port, "odd\u{202e}");
    let ahead = RawRequest::deployed("odd\u{202e}", words(&["DEL", "k"]));
    let stamp = format!("{}:0:odd", unix_ms() + 300_000);
    assert!(
        odd.answer(&ahead.replacing("__srcId", "raw").replacing("__ts", stamp))
            .starts_with(b"-ERR")
    );
    let text = get(metrics, "/traffic").2;
    assert!(!text.contains('\u{202e}') && text.ends_with("}\n"), "{text:?}");
    let report = traffic(metrics);
    let [first, second] = &report["clients"].as_array().expect("clients")[..] else {
        panic!("{report}")
    };
    assert_eq!((&first["client"], &first["verified"]), (&json!("raw"), &json!(true)), "{report}");
    assert_eq!((&first["requests"], &first["refused"]), (&json!(6), &json!(1)), "{report}");
    let first = first["ahead_ms"].as_i64().expect("a clock").unsigned_abs();
    assert!((behind - 60_000..=behind).contains(&first), "{report}");
    assert_eq!(second["client"], json!("odd\u{202e}"), "the verified id, not `__srcId`: {report}");
    assert_eq!((&second["requests"], &second["refused"]), (&json!(1), &json!(1)), "{report}");
    let second = second["ahead_ms"].as_i64().expect("a clock");
    assert!((240_000..=300_000).contains(&second), "{report}");
    let keys = report["keys"].as_array().expect("keys").iter();
    let mut keys: Vec<_> = keys
        .map(|key| {
            assert!(key["per_second"].as_f64().is_some_and(|rate| rate > 0.0), "{report}");
            let name = key.get("key").or_else(|| key.get("key_base64")).expect("a key");
            let count = |name: &str| key[name].as_u64().expect(name);
            (name.as_str().expect("text"), count("requests"), count("writes"), count("refused"))
        })
        .collect();
    keys.sort_unstable();
    assert_eq!(keys, [("/wo=", 1, 0, 0), ("k", 3, 2, 1), ("none", 1, 0, 0)]);
}

#[test]
fn commits_of_the_journal_are_counted() {
    let directory = std::env::temp_dir().join(format!("statestore-metrics-{}", std::process::id()));
    let store = Running::start(
        statestore().args(SERVE).args(["--durable", "all", "--data-dir"]).arg(&directory),
    );
    let metrics = metrics_port(&store);
    let port = store.line().split(';').next().and_then(|url| url.rsplit(':').next()?.parse().ok());
    let mut raw = Raw::connect(port.expect("a port"), "raw");
    for _ in 0..3 {
        assert_eq!(raw.command(&["SET", "k", "v"]), b"+OK\r\n");
    }
    let samples = scrape(metrics);
    assert!(samples["statestore_journal_commit_duration_seconds_count"] >= 3.0, "{samples:?}");
    assert!(samples["statestore_journal_commit_duration_seconds_sum"] > 0.0, "{samples:?}");
    assert!(samples["statestore_request_duration_seconds_sum"] > 0.0, "{samples:?}");
    store.kill();
    let _ = std::fs::remove_dir_all(directory);
}

#[expect(clippy::disallowed_methods, reason = "polls until the response changes")]
fn pause() {
    std::thread::sleep(Duration::from_millis(20));
}

#[test]
fn store_is_ready_while_connected_to_its_broker() {
    let Some(mut broker) = Mosquitto::start(&test_name()) else { return };
    let url = format!("mqtt://127.0.0.1:{}", broker.port());
    broker.kill();
    let serve = ["serve", "--broker", &url, "--metrics-listen", "127.0.0.1:0"];
    let store = Running::start(statestore().args(serve));
    let metrics = metrics_port(&store);
    let until = |code: u16| {
        for _ in 0..2_000 {
            let (found, _, body) = get(metrics, "/readyz");
            if found == code {
                return body;
            }
            pause();
        }
        panic!("/readyz never responds with {code}");
    };
    assert!(until(503).starts_with("offline"));
    assert_eq!(get(metrics, "/healthz").0, 200, "alive without a connection");
    let at = format!("http://127.0.0.1:{metrics}");
    let status = |options: &[&str]| {
        run(statestore().args(["status"]).args(options).env("STATESTORE_METRICS_URL", &at))
    };
    let not_ready = status(&["--ready"]);
    assert_eq!(not_ready.code, Some(1), "{not_ready:?}");
    assert!(not_ready.text().starts_with("offline"), "{not_ready:?}");
    let text = status(&[]);
    assert_eq!(text.code, Some(1), "{text:?}");
    assert!(text.text().starts_with("store      not ready: offline"), "{text:?}");
    let json = status(&["--output", "json"]);
    assert_eq!((json.code, &json.json()["ready"]), (Some(1), &false.into()));
    assert!(json.json()["reason"].as_str().is_some_and(|text| text.starts_with("offline")));
    status(&["--alive"]).is(0, "ok\n");
    assert_eq!(scrape(metrics)["statestore_ready"], 0.0);
    assert!(broker.restart(), "mosquitto starts again");
    assert_eq!(until(200), "ready\n");
    status(&["--ready"]).is(0, "ready\n");
    status(&[]).is(0, "store      ready\n");
    status(&["--output", "json"]).is(0, "{\"ready\":true}\n");
    status(&["--ready", "--metrics-url", "localhost"]).fails(2, &["http://HOST:PORT"]);
    let missing = format!("{at}/no/such/page");
    status(&["--ready", "--metrics-url", &missing]).fails(2, &["HTTP status 404"]);
    for check in [&["--ready"][..], &["--alive"], &[]] {
        let nowhere = [check, &["--metrics-url", "http://127.0.0.1:1"]].concat();
        status(&nowhere).fails(3, &["http://127.0.0.1:1: ", "`serve --metrics-listen`"]);
    }
    status(&["--ready", "--alive"]).fails(2, &["--alive"]);
    if cfg!(not(feature = "etcd")) {
        status(&["--etcd", "http://127.0.0.1:1"]).fails(2, &["--etcd", "--features etcd"]);
    }
    let samples = scrape(metrics);
    assert_eq!(samples["statestore_ready"], 1.0);
    assert!(
        !samples.contains_key("statestore_broker_connections"),
        "these are metrics of the embedded broker"
    );
    broker.kill();
    assert!(until(503).starts_with("offline: "), "with a reason");
}

/// Connects from another address repeatedly and sends nothing.
fn reconnect(port: u16, is_over: &AtomicBool) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let mut silent = VecDeque::new();
        while !is_over.load(Ordering::Relaxed) {
            let socket = TcpSocket::new_v4().expect("a socket");
            socket.bind("127.0.0.2:0".parse().expect("an address")).expect("a loopback address");
            silent.push_back(socket.connect((Ipv4Addr::LOCALHOST, port).into()).await);
            if silent.len() > 16 {
                silent.pop_front();
            }
        }
    });
}

#[test]
fn silent_connections_block_neither_scrapers_nor_clients() {
    let (_store, port, metrics) = start(&[]);
    let mut slow: Vec<_> = (0..100).map(|_| connect(metrics)).collect();
    let mut raw = Raw::connect(port, "raw");
    for turn in 0..10 {
        for stream in &mut slow {
            // Writing fails on connections that the server has closed.
            let _ = stream.write_all(b"G");
        }
        slow.extend((0..16).map(|_| connect(metrics)));
        assert_eq!(scrape(metrics)["statestore_ready"], 1.0, "turn {turn}");
        assert_eq!(raw.command(&["SET", "k", "v"]), b"+OK\r\n");
    }
    // Other clients reconnect as soon as they are disconnected.
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| reconnect(metrics, &is_over));
        }
        for turn in 0..30 {
            let code = std::panic::catch_unwind(|| get(metrics, "/readyz").0);
            if code.as_ref().ok() != Some(&200) {
                is_over.store(true, Ordering::Relaxed);
            }
            assert_eq!(code.ok(), Some(200), "turn {turn}");
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn other_and_invalid_requests_get_a_status_code() {
    let (_store, _, metrics) = start(&[]);
    assert_eq!(get(metrics, "/").0, 404);
    assert_eq!(get(metrics, "/readyz?verbose").0, 200);
    assert_eq!(exchange(metrics, b"POST /metrics HTTP/1.1\r\n\r\n").0, 405);
    assert_eq!(exchange(metrics, b"nonsense\r\n\r\n").0, 400);
    assert_eq!(exchange(metrics, &[b'x'; 9_000]).0, 431);
    let (code, head, body) =
        exchange(metrics, b"HEAD /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!((code, &*body), (200, ""));
    assert!(!head.contains("Content-Length: 0"), "{head}");
    assert_eq!(exchange(metrics, b"GET /metrics HTTP/1.0\r\n\r\n").0, 200);
    assert_eq!(exchange(metrics, b"GET /metrics HTTP/1.1\r\n\r\n").0, 400, "a Host is required");
    let long = format!("Host: localhost\r\nX-Long: {}\r\n", "x".repeat(9_000));
    assert_eq!(get_with(metrics, "/metrics", &long).0, 431);
    // One request per connection; its body is not read.
    let request = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n";
    let (code, head, body) = exchange(metrics, format!("{request}\r\n{request}\r\n").as_bytes());
    assert_eq!((code, &*body), (200, "ok\n"));
    assert!(head.to_lowercase().contains("\r\nconnection: close"), "{head}");
    let large = format!("{request}Content-Length: 1000000000\r\n\r\nbody");
    assert_eq!(exchange(metrics, large.as_bytes()).0, 200);
    let taken = format!("127.0.0.1:{metrics}");
    let second = statestore()
        .args(["serve", "--listen", "127.0.0.1:0", "--metrics-listen", &taken])
        .output();
    assert_eq!(second.expect("the command runs").status.code(), Some(3), "the port is in use");
}

/// A browser sends the name of the page in `Host`, also if that name resolves to this machine.
#[test]
fn web_pages_of_other_sites_cannot_read_metrics() {
    let (_store, _, metrics) =
        start(&["--traffic", "--http-allowed-hosts", "store.example,other.example"]);
    let code = |path: &str, headers: &str| get_with(metrics, path, headers);
    for path in ["/metrics", "/traffic", "/readyz"] {
        let (found, head, body) = code(path, "Host: evil.example\r\n");
        assert_eq!(found, 421, "{path}: {body}");
        assert!(head.starts_with("HTTP/1.1 421 Misdirected Request\r\n"), "{head}");
        assert!(body.contains("--http-allowed-hosts") && body.lines().count() == 1, "{body}");
        for host in ["store.example:9464", "OTHER.example", "127.0.0.1:1", "[::1]", "localhost:1"] {
            assert_eq!(code(path, &format!("Host: {host}\r\n")).0, 200, "{path} {host}");
        }
    }
    assert_eq!(
        code("/healthz", "Host: evil.example\r\n").0,
        200,
        "the health check contains no data"
    );
    for (origin, expected) in
        [("http://evil.example", 403), ("null", 403), ("http://localhost:9464", 200)]
    {
        let headers = format!("Host: localhost:9464\r\nOrigin: {origin}\r\n");
        assert_eq!(code("/traffic", &headers).0, expected, "{origin}");
    }
    let wrong = ["serve", "--metrics-listen", "127.0.0.1:0", "--http-allowed-hosts", "http://h"];
    run(statestore().args(wrong)).fails(2, &["--http-allowed-hosts", "without a port"]);
}

/// Sends requests from another address without a pause, and returns their number.
fn flood(port: u16, is_over: &AtomicBool) -> usize {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let mut count = 0;
        while !is_over.load(Ordering::Relaxed) {
            let socket = TcpSocket::new_v4().expect("a socket");
            socket.bind("127.0.0.2:0".parse().expect("an address")).expect("a loopback address");
            let Ok(mut stream) = socket.connect((Ipv4Addr::LOCALHOST, port).into()).await else {
                continue;
            };
            let request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
            let _ = stream.write_all(request).await;
            let _ = stream.read_to_end(&mut Vec::new()).await;
            count += 1;
        }
        count
    })
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the rule is about real time")]
fn flood_of_requests_delays_neither_scrapers_nor_clients() {
    let (_store, port, metrics) = start(&[]);
    let mut raw = Raw::connect(port, "raw");
    let is_over = AtomicBool::new(false);
    let time = |act: &mut dyn FnMut()| {
        let began = Instant::now();
        act();
        began.elapsed()
    };
    let median = |mut took: Vec<Duration>| {
        took.sort_unstable();
        took[took.len() / 2]
    };
    let mut set = || assert_eq!(raw.command(&["SET", "k", "v"]), b"+OK\r\n");
    let mut scrape = || assert_eq!(get(metrics, "/metrics").0, 200);
    let mut measure = || {
        let client = (0..200).map(|_| time(&mut set)).collect();
        let scraper = (0..50).map(|_| time(&mut scrape)).collect();
        (median(client), median(scraper))
    };
    let alone = measure();
    let (client, scraper, flooded) = std::thread::scope(|scope| {
        let floods = [(); 4].map(|()| scope.spawn(|| flood(metrics, &is_over)));
        let measured = std::panic::catch_unwind(std::panic::AssertUnwindSafe(&mut measure));
        is_over.store(true, Ordering::Relaxed);
        let flooded: usize = floods.into_iter().map(|flood| flood.join().expect("a number")).sum();
        let (client, scraper) = measured.expect("a response to each request");
        (client, scraper, flooded)
    });
    // Without a flood, each takes less than a millisecond, unless the machine is busy.
    let limit = |alone: Duration| 100 * alone.max(Duration::from_millis(1));
    assert!(
        client < limit(alone.0) && scraper < limit(alone.1),
        "{client:?} {scraper:?}, during {flooded} requests; {alone:?} without them"
    );
}

/// Returns the names of metrics in a text, without the suffixes of histograms.
fn names(text: &str) -> BTreeSet<String> {
    let is_word = |char: char| char.is_ascii_alphanumeric() || char == '_';
    let words = text.split(|char| !is_word(char)).filter(|word| word.starts_with("statestore_"));
    words.map(family).collect()
}

fn family(name: &str) -> String {
    let parts = ["_bucket", "_sum", "_count"];
    let base = parts.iter().find_map(|part| name.strip_suffix(part));
    base.filter(|base| base.ends_with("_seconds")).unwrap_or(name).to_owned()
}

#[test]
fn documentation_and_dashboard_name_each_metric() {
    let Some(made) = Certificates::make("metrics_page") else { return };
    let path = |name: &str| made.path(name).to_str().expect("text").to_owned();
    let (cert, key) = (path("broker.pem"), path("broker.key"));
    let tls = ["--listen-tls", "127.0.0.1:0", "--listen-tls-cert", &cert, "--listen-tls-key", &key];
    let (_store, _, metrics) = start(&tls);
    let found = scrape(metrics);
    let found: BTreeSet<_> =
        found.keys().map(|series| family(series.split('{').next().expect("a name"))).collect();
    let page = include_str!("../../../docs/metrics.md");
    assert_eq!(names(page), found, "docs/metrics.md names each metric, and no other");
    let dashboard = include_str!("../../../docs/grafana/statestore.json");
    let dashboard: Value = serde_json::from_str(dashboard).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let mut shown = BTreeSet::new();
    for target in panels.iter().flat_map(|panel| panel["targets"].as_array().expect("targets")) {
        let expression = target["expr"].as_str().expect("an expression");
        let used = names(expression);
        assert!(!used.is_empty() && used.is_subset(&found), "{expression}");
        shown.extend(used);
    }
    assert_eq!(shown, found, "the dashboard shows each metric");
}

//! `doctor` reports the cause of each problem between a client and its store, with a remedy.

use std::fs;
use std::thread;

use serde_json::Value;
use statestore_testkit::brokers::Mosquitto;
use statestore_testkit::credentials::Certificates;
use statestore_testkit::process::Port;
use statestore_testkit::wire::raw::{
    REQUEST, Raw, RawRequest, array, notification_topic, property, response_topic, unix_ms,
};

use crate::deployment::{Mode, in_each_mode, test_name};
use crate::embedded_broker::{EmbeddedStore, Scratch};
use crate::process::{Running, run, run_with_input, statestore};

in_each_mode!(doctor_finds_no_problem_with_a_working_store, read_only_doctor_writes_nothing);

/// The report of one run of doctor.
struct Report {
    code: Option<i32>,
    json: Value,
}

impl Report {
    /// Returns verdict, detail and remedy of a check.
    fn finding(&self, check: &str) -> (&str, &str, &str) {
        let checks = self.json["checks"].as_array().expect("checks");
        let finding = checks.iter().find(|finding| finding["check"] == check);
        let finding = finding.unwrap_or_else(|| panic!("no {check}: {}", self.json));
        let text = |name: &str| finding[name].as_str().expect("text");
        (text("verdict"), text("detail"), text("remedy"))
    }

    /// Asserts that this check is the first problem, with this exit code and these parts of the
    /// texts.
    #[track_caller]
    fn fails(&self, code: i32, check: &str, detail_part: &str, remedy_part: &str) {
        assert_eq!(self.code, Some(code), "{:#}", self.json);
        let (verdict, detail, remedy) = self.finding(check);
        assert_eq!(self.json["summary"], format!("{check}: {detail}"), "{:#}", self.json);
        assert_eq!(verdict, "failed");
        assert!(detail.contains(detail_part), "{detail_part:?} is not in {detail:?}");
        assert!(remedy.contains(remedy_part), "{remedy_part:?} is not in {remedy:?}");
    }

    /// Asserts that all checks pass. A warning about latency is accepted, since requests of a
    /// busy machine can take as long as delayed acknowledgements.
    #[track_caller]
    fn passes(&self) {
        let checks = self.json["checks"].as_array().expect("checks");
        let warnings = checks.iter().filter(|finding| finding["verdict"] == "warning");
        assert!(warnings.clone().all(|finding| finding["check"] == "latency"), "{:#}", self.json);
        let code = i32::from(warnings.count() > 0);
        assert_eq!(self.code, Some(code), "{:#}", self.json);
    }
}

/// Runs doctor against this broker.
fn doctor(url: &str, options: &[&str]) -> Report {
    let mut command = statestore();
    command.args(["doctor", "--output", "json", "--broker", url]).args(options);
    let ended = run(&mut command);
    Report { code: ended.code, json: ended.json() }
}

fn doctor_finds_no_problem_with_a_working_store(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    let report = doctor(&here.url(), &[]);
    report.passes();
    for check in
        ["address", "port", "login", "limits", "responses", "request", "store", "one-store"]
    {
        assert_eq!(report.finding(check).0, "ok", "{:#}", report.json);
    }
    let delivery = match mode {
        Mode::External => "they arrive with a subscription",
        Mode::Embedded => "they arrive without a subscription",
    };
    assert_eq!(report.finding("notifications"), ("ok", delivery, ""));
    assert!(report.finding("clock").1.contains("this machine's"));
    assert_eq!(
        report.finding("dialect").1,
        "responses have the properties that deployed clients need"
    );
    // The test key is deleted.
    here.run(&["keys", "**"]).is(1, "");
    let printed = here.run(&["doctor"]);
    let first = printed.text().lines().next().expect("a line");
    assert!(first.starts_with(&format!("{}: no problem found", here.url())), "{first}");
    let findings = printed.text().lines().filter(|line| !line.contains('→'));
    assert_eq!(findings.count(), 16, "{printed:?}");
}

fn read_only_doctor_writes_nothing(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    let watch = here.spawn(&["watch", "other", "--output", "json"]);
    watch.json();
    let report = doctor(&here.url(), &["--read-only"]);
    assert_eq!(report.finding("write"), ("skipped", "--read-only", ""));
    assert_eq!(report.finding("read").0, "ok");
    here.run(&["keys", "**"]).is(1, "");
}

#[test]
fn closed_port_and_unknown_host_are_reported() {
    let port = Port::free();
    let url = format!("mqtt://127.0.0.1:{}", port.number());
    let report = doctor(&url, &[]);
    report.fails(3, "port", "no server listens on port", "start the broker, or `statestore serve`");
    assert_eq!(report.finding("read"), ("skipped", "depends on port", ""));
    doctor("mqtt://no-such-host.invalid:1", &[]).fails(
        2,
        "address",
        "no-such-host",
        "the host name",
    );
}

#[test]
fn each_problem_of_tls_is_reported_with_its_remedy() {
    let Some(made) = Certificates::make(&test_name()) else { return };
    made.make_authority("other");
    made.make_dated("old", "20200101000000Z", "20210101000000Z");
    let path = |name: &str| made.path(name).to_str().expect("text").to_owned();
    let (ca, cert, key) = (path("ca.pem"), path("broker.pem"), path("broker.key"));
    let server = EmbeddedStore::start(&[
        "--listen-tls-cert",
        &cert,
        "--listen-tls-key",
        &key,
        "--listen-tls-client-ca",
        &ca,
    ]);
    let url = format!("mqtts://localhost:{}", server.port);
    let (client, client_key) = (path("client.pem"), path("client.key"));
    let identity = ["--tls-ca", &ca, "--tls-cert", &client, "--tls-key", &client_key];
    let report = doctor(&url, &identity);
    // The certificate is valid for two days.
    assert_eq!(report.finding("tls").0, "warning", "{:#}", report.json);
    assert!(report.finding("tls").1.contains("expires in 1 days"), "{:#}", report.json);
    assert_eq!(report.code, Some(1), "{:#}", report.json);
    doctor(&url, &["--tls-ca", &path("other.pem")]).fails(2, "tls", "does not trust", "--tls-ca");
    doctor(&url, &["--tls-ca", &ca]).fails(
        2,
        "tls",
        "requires a client certificate",
        "--tls-cert and --tls-key",
    );
    let elsewhere = url.replace("localhost", "127.0.0.1");
    doctor(&elsewhere, &identity).fails(2, "tls", "is for localhost", "a name in the certificate");
    let plain = url.replace("mqtts", "mqtt");
    doctor(&plain, &[]).fails(2, "tls", "speaks TLS on this port", "mqtts://");
    let server = EmbeddedStore::start(&[]);
    let url = format!("mqtts://localhost:{}", server.port);
    doctor(&url, &["--tls-ca", &ca]).fails(2, "tls", "no TLS on this port", "mqtt://");
    // `serve` rejects its own certificate if it is expired.
    let lines = made.broker_lines().replace("broker.pem", "old.pem").replace("true", "false");
    let Some(broker) = Mosquitto::start_with(&test_name(), &lines) else { return };
    let url = format!("mqtts://localhost:{}", broker.port());
    doctor(&url, &["--tls-ca", &ca]).fails(2, "tls", "expired on 2021-01-01", "renew the broker's");
}

#[test]
fn wrong_password_is_reported() {
    let users = Scratch::new("doctor-users");
    run_with_input(statestore().args(["passwd", users.path(), "ann"]), b"secret\n").is(0, "");
    let server = EmbeddedStore::start(&["--password-file", users.path()]);
    let url = format!("mqtt://127.0.0.1:{}", server.port);
    // The check of a password may take long on a busy machine.
    let login =
        |password| doctor(&url, &["--user", "ann", "--password", password, "--timeout", "60s"]);
    login("wrong").fails(2, "login", "bad user name or password", "check --user");
    login("secret").passes();
}

/// Starts a mosquitto with access rules, and a store that is allowed everything.
fn with_access_rules(rules: &str) -> Option<(Mosquitto, Running, Scratch, String)> {
    let file = Scratch::new(&format!("doctor-acl-{}", test_name()));
    fs::write(file.path(), rules).expect("a file");
    let lines = format!("acl_file {}\nuser root", file.path());
    let broker = Mosquitto::start_with(&test_name(), &lines)?;
    let url = format!("mqtt://127.0.0.1:{}", broker.port());
    let store = Running::start(statestore().args(["serve", "--broker", &url]));
    store.line();
    Some((broker, store, file, url))
}

#[test]
fn denied_request_topic_is_reported() {
    // The pattern allows each client only a topic with its own id.
    let rules = format!("topic read #\npattern write clients/#\npattern write {REQUEST}/%c\n");
    let Some((_broker, _store, _file, url)) = with_access_rules(&rules) else { return };
    doctor(&url, &[]).fails(
        2,
        "request",
        "not authorized",
        "allow this client to publish to statestore/v1",
    );
}

/// Mosquitto grants the subscription, and withholds the messages.
#[test]
fn withheld_responses_are_reported() {
    let rules = format!("topic read {REQUEST}\ntopic write #\n");
    let Some((_broker, _store, _file, url)) = with_access_rules(&rules) else { return };
    doctor(&url, &[]).fails(
        3,
        "responses",
        "no message arrived",
        "allow this client to subscribe to clients/",
    );
}

#[test]
fn denied_publishing_of_responses_is_reported_by_doctor_and_store() {
    let rules =
        format!("topic read #\ntopic write {REQUEST}\ntopic write clients/statestore/services/#\n");
    let Some((_broker, store, _file, url)) = with_access_rules(&rules) else { return };
    doctor(&url, &[]).fails(3, "responses", "no message arrived", "see its log");
    let line = store.complaint();
    assert!(line.contains("response rejected by the broker"), "{line}");
    assert!(line.contains("not authorized"), "{line}");
}

#[test]
fn withheld_notifications_are_reported() {
    let rules = format!("topic read {REQUEST}\npattern read clients/%c/#\ntopic write #\n");
    let Some((_broker, _store, _file, url)) = with_access_rules(&rules) else { return };
    doctor(&url, &[]).fails(
        2,
        "notifications",
        "no notification arrived",
        "grant a subscription and then withhold",
    );
}

#[test]
fn denied_keys_are_reported_for_reads_and_writes() {
    let policy = Scratch::new("doctor-policy.yaml");
    let allowed = r#"
rules:
  - principals: {clientIds: [ann]}
    brokerResources:
      - method: Connect
      - method: Publish
        topics: ["statestore/#"]
      - {method: Subscribe, topics: ["clients/#"]}
    stateStoreResources:
      - {method: Read, keys: ["mine/*"]}
"#;
    fs::write(policy.path(), allowed).expect("a file");
    let server = EmbeddedStore::start(&["--policy", policy.path()]);
    let url = format!("mqtt://127.0.0.1:{}", server.port);
    let report = doctor(&url, &["--client-id", "ann"]);
    report.fails(2, "read", "not authorized", "in the policy of the store");
    let named = ["--client-id", "ann", "--key-prefix", "mine/doctor-", "--read-only"];
    doctor(&url, &named).passes();
    fs::write(policy.path(), allowed.replace("mine/*", "*")).expect("a file");
    let server = EmbeddedStore::start(&["--policy", policy.path()]);
    let url = format!("mqtt://127.0.0.1:{}", server.port);
    let report = doctor(&url, &["--client-id", "ann"]);
    report.fails(2, "write", "not authorized", "--read-only");
    doctor(&url, &["--client-id", "ann", "--read-only"]).passes();
}

#[test]
fn missing_store_and_second_store_are_reported() {
    let Some(broker) = Mosquitto::start(&test_name()) else { return };
    let url = format!("mqtt://127.0.0.1:{}", broker.port());
    let report = doctor(&url, &[]);
    report.fails(
        3,
        "store",
        "no client is subscribed to the request topic",
        "statestore serve --broker URL",
    );
    let stores = ["one", "two"].map(|id| {
        let mut serve = statestore();
        serve.args(["serve", "--take-over", "--broker", &url, "--client-id", id]);
        let store = Running::start(&mut serve);
        store.line();
        store
    });
    let report = doctor(&url, &[]);
    report.fails(2, "one-store", "2 responses to one request from ", "stop all stores but one");
    // The names of both stores.
    let names =
        report.finding("one-store").1.rsplit(" from ").next().expect("names").split(", ").count();
    assert_eq!(names, 2, "{:#}", report.json);
    drop(stores);
}

const TOO_FAR_AHEAD: &[u8] =
    b"-ERR the request timestamp is too far in the future; ensure that the \
    client and broker system clocks are synchronized\r\n";

/// Starts a store whose clock is `skew` milliseconds ahead, and that accepts timestamps up to
/// `allowed` milliseconds ahead of its clock. It ends with the request `stop`.
fn store_with_skew(broker: &Mosquitto, skew: i64, allowed: i64) -> thread::JoinHandle<()> {
    let mut raw = Raw::connect(broker.port(), "skewed");
    raw.subscribe(REQUEST);
    thread::spawn(move || {
        loop {
            let request = raw.message();
            let time = unix_ms().checked_add_signed(skew).expect("a time");
            let stamp = property(&request, "__ts").and_then(|text| text.split(':').next());
            let stamp: u64 = stamp.and_then(|text| text.parse().ok()).unwrap_or(0);
            let reply: &[u8] = match &request.payload[..] {
                b"stop" => return,
                _ if stamp > time.saturating_add_signed(allowed) => TOO_FAR_AHEAD,
                payload if payload.windows(3).any(|word| word == b"GET") => b"$-1\r\n",
                payload if payload.windows(3).any(|word| word == b"DEL") => b":1\r\n",
                _ => b"+OK\r\n",
            };
            raw.reply_at(&request, reply, &format!("{time}:0:other"));
        }
    })
}

#[test]
fn versions_that_a_client_moved_ahead_are_not_a_clock_ahead() {
    let server = EmbeddedStore::start(&[]);
    let mut client = Raw::connect(server.port, "ahead");
    client.subscribe(&response_topic("ahead"));
    let mut set = RawRequest::minimal("ahead", array(&[b"SET", b"k", b"v"]));
    set.properties = vec![("__ts".into(), format!("{}:0:ahead", unix_ms() + 30_000))];
    assert_eq!(client.answer(&set), b"+OK\r\n");
    let report = doctor(&format!("mqtt://127.0.0.1:{}", server.port), &[]);
    let (verdict, detail, _) = report.finding("clock");
    assert_eq!(verdict, "ok", "{detail}");
    assert!(detail.contains("ahead: a client moved them"), "{detail}");
}

#[test]
fn clock_skew_is_reported_with_its_limit() {
    let Some(broker) = Mosquitto::start(&test_name()) else { return };
    let url = format!("mqtt://127.0.0.1:{}", broker.port());
    for (skew, allowed, part, is_failure) in [
        (300_000, 60_000, "ahead of", true),
        (-300_000, 60_000, "behind", true),
        (-30_000, 60_000, "(limit 60 s)", false),
        (-3_000, 1_000, "more than the store allows: ", true),
    ] {
        let store = store_with_skew(&broker, skew, allowed);
        let report = doctor(&url, &[]);
        let mut ends = Raw::connect(broker.port(), "ends");
        ends.publish(REQUEST, false, &b"stop"[..]);
        store.join().expect("the store responds");
        let (verdict, detail, remedy) = report.finding("clock");
        assert_eq!(verdict, if is_failure { "failed" } else { "warning" }, "{detail}");
        assert!(detail.contains(part), "{detail}");
        assert!(remedy.contains("synchronize both clocks"), "{remedy}");
        if skew == -3_000 {
            report.fails(2, "clock", " s behind this machine's, more than", "--max-clock-drift");
        } else if is_failure {
            report.fails(2, "clock", "(limit 60 s)", "synchronize both clocks");
            assert!(
                ["the store's clock is 30", "the store's clock is 29"]
                    .iter()
                    .any(|part| detail.contains(part)),
                "{detail}"
            );
        }
    }
}

/// Starts a store that publishes the notification of the first SET after KEYNOTIFY late: after the
/// client has registered again and sent the next SET. It never publishes the notification of that
/// next SET.
fn store_with_late_notification(broker: &Mosquitto, client_id: &str) -> thread::JoinHandle<()> {
    let mut raw = Raw::connect(broker.port(), "late");
    raw.subscribe(REQUEST);
    let client_id = client_id.to_owned();
    thread::spawn(move || {
        let (mut registrations, mut late) = (0, None);
        loop {
            let request = raw.message();
            let payload = &request.payload[..];
            if payload == b"stop" {
                return;
            }
            let words: Vec<_> = payload.split(|byte| *byte == b'\n').collect();
            let word = |at: usize| words[at].trim_ascii_end();
            let reply: &[u8] = match word(2) {
                b"GET" => b"$-1\r\n",
                b"DEL" => b":1\r\n",
                b"KEYNOTIFY" => {
                    registrations += 1;
                    b"+OK\r\n"
                }
                _ => b"+OK\r\n",
            };
            raw.reply_at(&request, reply, &format!("{}:0:late", unix_ms()));
            if word(2) == b"SET" && registrations > 0 {
                let topic = notification_topic(&client_id, Some(word(4)));
                let notification = array(&[b"NOTIFY", b"SET", b"VALUE", word(6)]);
                match late.take() {
                    None => late = Some(notification),
                    Some(earlier) => _ = raw.publish(&topic, false, earlier),
                }
            }
        }
    })
}

#[test]
fn late_notification_of_an_earlier_set_does_not_count_as_delivery() {
    let Some(broker) = Mosquitto::start(&test_name()) else { return };
    let url = format!("mqtt://127.0.0.1:{}", broker.port());
    let store = store_with_late_notification(&broker, "watcher");
    let report = doctor(&url, &["--client-id", "watcher"]);
    Raw::connect(broker.port(), "ends").publish(REQUEST, false, &b"stop"[..]);
    store.join().expect("the store responds");
    report.fails(2, "notifications", "no notification arrived", "allow the store to publish");
}

#[test]
fn peer_that_does_not_speak_mqtt_5_is_reported() {
    use std::io::{Read as _, Write as _};
    use std::net::{Ipv4Addr, TcpListener};
    let responses: [&'static [u8]; 4] = [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        // A CONNACK of MQTT 3.1.1, a packet of 256 MiB, and endless unexpected PINGRESPs.
        &[0x20, 2, 0, 1],
        &[0x30, 0xff, 0xff, 0xff, 0x7f],
        &[0xd0, 0],
    ];
    for response in responses {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let url = format!("mqtt://{}", listener.local_addr().expect("its address"));
        let peer = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            let mut connect = [0; 14];
            let _ = stream.read_exact(&mut connect);
            // Until doctor closes the connection.
            while stream
                .write_all(&response.repeat(1 + 1_000 * usize::from(response.len() == 2)))
                .is_ok()
            {}
        });
        let report = doctor(&url, &["--timeout", "2s"]);
        assert!([Some(2), Some(3)].contains(&report.code), "{:#}", report.json);
        let summary = report.json["summary"].as_str().expect("text");
        assert!(summary.starts_with("login: "), "{:#}", report.json);
        peer.join().expect("the peer ends");
    }
}

/// Starts a peer that responds to CONNECT with these bytes, and then repeats `flood` until the
/// client closes the connection. With an empty `flood`, it only reads.
fn peer(connack: Vec<u8>, flood: Vec<u8>) -> (String, thread::JoinHandle<()>) {
    use std::io::{Read as _, Write as _};
    use std::net::{Ipv4Addr, TcpListener};
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let url = format!("mqtt://{}", listener.local_addr().expect("its address"));
    let peer = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let _ = stream.read(&mut [0; 1_024]);
        let _ = stream.write_all(&connack);
        match flood.is_empty() {
            true => while stream.read(&mut [0; 1_024]).is_ok_and(|count| count > 0) {},
            false => while stream.write_all(&flood).is_ok() {},
        }
    });
    (url, peer)
}

#[test]
fn broker_that_floods_does_not_delay_the_time_limit() {
    let publish = [&[0x30, 100, 0, 1, b't', 0][..], &[b'v'; 96]].concat();
    let (url, peer) = peer(vec![0x20, 3, 0, 0, 0], publish.repeat(1_000));
    let report = doctor(&url, &["--timeout", "5s"]);
    report.fails(3, "responses", "does not respond to SUBSCRIBE", "the log of the broker");
    peer.join().expect("the peer ends");
}

#[test]
fn too_small_packet_limit_is_reported() {
    // A CONNACK with a Maximum Packet Size of 200, and nothing else.
    let (url, peer) = peer(vec![0x20, 8, 0, 0, 5, 0x27, 0, 0, 0, 200], Vec::new());
    let report = doctor(&url, &[]);
    report.fails(2, "limits", "maximum packet size 200 bytes", "requests are larger");
    assert_eq!(report.finding("request").0, "skipped");
    peer.join().expect("the peer ends");
}

#[test]
fn invalid_response_to_a_request_is_reported() {
    let Some(broker) = Mosquitto::start(&test_name()) else { return };
    let url = format!("mqtt://127.0.0.1:{}", broker.port());
    let mut raw = Raw::connect(broker.port(), "other");
    raw.subscribe(REQUEST);
    let other = thread::spawn(move || {
        let request = raw.message();
        raw.reply_to(&request, &[0xa5; 1_000]);
        raw
    });
    let report = doctor(&url, &[]);
    report.fails(2, "store", "invalid response to a GET", "it is not a state store");
    drop(other.join().expect("a response"));
}

#[test]
fn each_broker_of_a_list_is_checked() {
    let (server, closed) = (EmbeddedStore::start(&[]), Port::free());
    let (server, closed) = (server.port, closed.number());
    let mut two = statestore();
    two.args(["doctor", "--broker"]);
    two.arg(format!("mqtt://127.0.0.1:{server},mqtt://127.0.0.1:{closed}"));
    let printed = run(&mut two);
    assert_eq!(printed.code, Some(3), "{printed:?}");
    let heads = printed.text().lines().filter(|line| line.starts_with("mqtt://"));
    let heads: Vec<_> = heads.collect();
    assert!(
        heads[0].starts_with(&format!("mqtt://127.0.0.1:{server}: no problem found")),
        "{heads:?}"
    );
    let second = format!("mqtt://127.0.0.1:{closed}: port: no server listens on port {closed}");
    assert_eq!(heads[1..], [&*second]);
    run(statestore().args(["doctor", "--broker", "mqtt://a,http://b"]))
        .fails(2, &["URL 2: invalid URL"]);
    run(statestore().args(["doctor", "--broker", "mqtts://a", "--tls-ca", "/no/such"]))
        .fails(2, &["--tls-ca: /no/such: No such file"]);
}

//! `doctor` with everything that it is meant for: what it says is the one thing that is wrong.

use std::fs;
use std::thread;

use serde_json::Value;
use statestore_tests::certificates::Certificates;
use statestore_tests::mosquitto::Mosquitto;
use statestore_tests::port::Port;
use statestore_tests::raw::{REQUEST, Raw, property, unix_ms};

use crate::own_broker::{Own, Scratch};
use crate::place::{Form, everywhere, test_name};
use crate::process::{Running, run, run_with_input, statestore};

everywhere!(nothing_is_wrong_where_nothing_is, nothing_is_written_where_nothing_may_be);

/// What doctor says.
struct Said {
    code: Option<i32>,
    all: Value,
}

impl Said {
    fn about(&self, check: &str) -> (&str, &str, &str) {
        let checks = self.all["checks"].as_array().expect("checks");
        let found = checks.iter().find(|one| one["check"] == check);
        let found = found.unwrap_or_else(|| panic!("no {check}: {}", self.all));
        let text = |name: &str| found[name].as_str().expect("text");
        (text("verdict"), text("seen"), text("remedy"))
    }

    /// That this is wrong first, what is said of it, and what to do.
    #[track_caller]
    fn is_wrong(&self, code: i32, check: &str, seen: &str, remedy: &str) {
        assert_eq!(self.code, Some(code), "{:#}", self.all);
        let (verdict, was_seen, was_advised) = self.about(check);
        assert_eq!(self.all["verdict"], format!("{check}: {was_seen}"), "{:#}", self.all);
        assert_eq!(verdict, "wrong");
        assert!(was_seen.contains(seen), "{seen:?} is not in {was_seen:?}");
        assert!(was_advised.contains(remedy), "{remedy:?} is not in {was_advised:?}");
    }

    /// That nothing is wrong, but that a machine which is busy may look like one that waits for acknowledgements.
    #[track_caller]
    fn is_fine(&self) {
        let checks = self.all["checks"].as_array().expect("checks");
        let warnings = checks.iter().filter(|one| one["verdict"] == "warning");
        assert!(warnings.clone().all(|one| one["check"] == "latency"), "{:#}", self.all);
        let code = i32::from(warnings.count() > 0);
        assert_eq!(self.code, Some(code), "{:#}", self.all);
    }
}

fn doctor(url: &str, options: &[&str]) -> Said {
    let mut command = statestore();
    command.args(["doctor", "--output", "json", "--broker", url]).args(options);
    let ended = run(&mut command);
    Said { code: ended.code, all: ended.json() }
}

fn nothing_is_wrong_where_nothing_is(form: Form) {
    let Some(here) = form.start(&[]) else { return };
    let said = doctor(&here.url(), &[]);
    said.is_fine();
    for check in
        ["address", "port", "login", "limits", "responses", "request", "answer", "one-store"]
    {
        assert_eq!(said.about(check).0, "ok", "{:#}", said.all);
    }
    let told = match form {
        Form::Beside => "they come by subscription",
        Form::Embedded => "they come directly, without a subscription",
    };
    assert_eq!(said.about("notifications"), ("ok", told, ""));
    assert!(said.about("clock").1.contains("the one here"));
    assert_eq!(said.about("dialect").1, "that of deployed clients");
    // It leaves nothing behind.
    here.run(&["keys", "**"]).is(1, "");
    let text = here.run(&["doctor"]);
    let first = text.text().lines().next().expect("a line");
    assert!(first.starts_with(&format!("{}: nothing is wrong", here.url())), "{first}");
    assert_eq!(text.text().lines().filter(|line| !line.contains('→')).count(), 16, "{text:?}");
}

fn nothing_is_written_where_nothing_may_be(form: Form) {
    let Some(here) = form.start(&[]) else { return };
    let watch = here.spawn(&["watch", "other", "--output", "json"]);
    watch.json();
    let said = doctor(&here.url(), &["--read-only"]);
    assert_eq!(said.about("write"), ("skipped", "--read-only", ""));
    assert_eq!(said.about("read").0, "ok");
    here.run(&["keys", "**"]).is(1, "");
}

#[test]
fn nobody_there() {
    let port = Port::free();
    let url = format!("mqtt://127.0.0.1:{}", port.number());
    let said = doctor(&url, &[]);
    said.is_wrong(
        3,
        "port",
        "no server listens on port",
        "start the broker, or `statestore serve`",
    );
    assert_eq!(said.about("read"), ("skipped", "because of port", ""));
    doctor("mqtt://no-such-host.invalid:1", &[]).is_wrong(2, "address", "no-such-host", "the name");
}

#[test]
fn whatever_is_wrong_with_tls() {
    let Some(made) = Certificates::make(&test_name()) else { return };
    made.make_authority("other");
    made.make_dated("old", "20200101000000Z", "20210101000000Z");
    let path = |name: &str| made.path(name).to_str().expect("text").to_owned();
    let (ca, cert, key) = (path("ca.pem"), path("broker.pem"), path("broker.key"));
    let own = Own::start(&[
        "--listen-tls-cert",
        &cert,
        "--listen-tls-key",
        &key,
        "--listen-tls-client-ca",
        &ca,
    ]);
    let url = format!("mqtts://localhost:{}", own.port);
    let (client, client_key) = (path("client.pem"), path("client.key"));
    let identity = ["--tls-ca", &ca, "--tls-cert", &client, "--tls-key", &client_key];
    let said = doctor(&url, &identity);
    // Made for two days.
    assert_eq!(said.about("tls").0, "warning", "{:#}", said.all);
    assert!(said.about("tls").1.contains(", for 1 days"), "{:#}", said.all);
    assert_eq!(said.code, Some(1), "{:#}", said.all);
    doctor(&url, &["--tls-ca", &path("other.pem")]).is_wrong(
        2,
        "tls",
        "not trusted here",
        "--tls-ca",
    );
    doctor(&url, &["--tls-ca", &ca]).is_wrong(
        2,
        "tls",
        "requires a client certificate",
        "--tls-cert and --tls-key",
    );
    let elsewhere = url.replace("localhost", "127.0.0.1");
    doctor(&elsewhere, &identity).is_wrong(
        2,
        "tls",
        "is for localhost",
        "a name in the certificate",
    );
    let plain = url.replace("mqtts", "mqtt");
    doctor(&plain, &[]).is_wrong(2, "tls", "speaks TLS on this port", "mqtts://");
    let own = Own::start(&[]);
    let url = format!("mqtts://localhost:{}", own.port);
    doctor(&url, &["--tls-ca", &ca]).is_wrong(2, "tls", "no TLS on this port", "mqtt://");
    // Which `serve` refuses to show.
    let lines = made.broker_lines().replace("broker.pem", "old.pem").replace("true", "false");
    let Some(broker) = Mosquitto::start_with(&test_name(), &lines) else { return };
    let url = format!("mqtts://localhost:{}", broker.port());
    doctor(&url, &["--tls-ca", &ca]).is_wrong(
        2,
        "tls",
        "expired on 2021-01-01",
        "renew the broker's",
    );
}

#[test]
fn a_wrong_password() {
    let users = Scratch::new("doctor-users");
    run_with_input(statestore().args(["passwd", users.path(), "ann"]), b"secret\n").is(0, "");
    let own = Own::start(&["--password-file", users.path()]);
    let url = format!("mqtt://127.0.0.1:{}", own.port);
    let said = doctor(&url, &["--user", "ann", "--password", "wrong"]);
    said.is_wrong(2, "login", "bad user name or password", "check --user");
    doctor(&url, &["--user", "ann", "--password", "secret"]).is_fine();
}

/// A mosquitto with access rules, and a store beside it that may do everything.
fn ruled(rules: &str) -> Option<(Mosquitto, Running, Scratch, String)> {
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
fn a_request_topic_that_is_denied() {
    // By a pattern only clients of that name may ask; the store's own id is another.
    let rules = format!("topic read #\npattern write clients/#\npattern write {REQUEST}/%c\n");
    let Some((_broker, _store, _file, url)) = ruled(&rules) else { return };
    doctor(&url, &[]).is_wrong(
        2,
        "request",
        "not authorized",
        "let this client write statestore/v1",
    );
}

/// Mosquitto grants the subscription, and delivers nothing.
#[test]
fn a_subscription_that_is_granted_and_silent() {
    let rules = format!("topic read {REQUEST}\ntopic write #\n");
    let Some((_broker, _store, _file, url)) = ruled(&rules) else { return };
    doctor(&url, &[]).is_wrong(3, "responses", "nothing comes", "let this client read clients/");
}

#[test]
fn answers_that_the_store_may_not_write() {
    let rules =
        format!("topic read #\ntopic write {REQUEST}\ntopic write clients/statestore/services/#\n");
    let Some((_broker, store, _file, url)) = ruled(&rules) else { return };
    doctor(&url, &[]).is_wrong(3, "responses", "nothing comes", "in its log");
    let line = store.complaint();
    assert!(line.contains("response rejected by the broker"), "{line}");
    assert!(line.contains("not authorized"), "{line}");
}

#[test]
fn notifications_that_are_granted_and_silent() {
    let rules = format!("topic read {REQUEST}\npattern read clients/%c/#\ntopic write #\n");
    let Some((_broker, _store, _file, url)) = ruled(&rules) else { return };
    doctor(&url, &[]).is_wrong(2, "notifications", "none comes", "grant and then deny in silence");
}

#[test]
fn keys_that_are_denied() {
    let policy = Scratch::new("doctor-policy.yaml");
    let allowed = "rules:\n  - principals: {clientIds: [ann]}\n    brokerResources:\n      - method: Connect\n      - method: Publish\n        topics: [\"statestore/#\"]\n      - {method: Subscribe, topics: [\"clients/#\"]}\n    stateStoreResources:\n      - {method: Read, keys: [\"mine/*\"]}\n";
    fs::write(policy.path(), allowed).expect("a file");
    let own = Own::start(&["--policy", policy.path()]);
    let url = format!("mqtt://127.0.0.1:{}", own.port);
    let said = doctor(&url, &["--client-id", "ann"]);
    said.is_wrong(2, "read", "not authorized", "in the policy of the store");
    let named = ["--client-id", "ann", "--key-prefix", "mine/doctor-", "--read-only"];
    doctor(&url, &named).is_fine();
    fs::write(policy.path(), allowed.replace("mine/*", "*")).expect("a file");
    let own = Own::start(&["--policy", policy.path()]);
    let url = format!("mqtt://127.0.0.1:{}", own.port);
    let said = doctor(&url, &["--client-id", "ann"]);
    said.is_wrong(2, "write", "not authorized", "--read-only");
    doctor(&url, &["--client-id", "ann", "--read-only"]).is_fine();
}

#[test]
fn no_store_and_two_of_them() {
    let Some(broker) = Mosquitto::start(&test_name()) else { return };
    let url = format!("mqtt://127.0.0.1:{}", broker.port());
    let said = doctor(&url, &[]);
    said.is_wrong(3, "answer", "nobody listens to requests", "statestore serve --broker URL");
    let stores = ["one", "two"].map(|id| {
        let mut serve = statestore();
        serve.args(["serve", "--take-over", "--broker", &url, "--client-id", id]);
        let store = Running::start(&mut serve);
        store.line();
        store
    });
    let said = doctor(&url, &[]);
    said.is_wrong(2, "one-store", "2 answers to one request: ", "stop all stores but one");
    // Both are named.
    let names = said.about("one-store").1.rsplit(": ").next().expect("names").split(", ").count();
    assert_eq!(names, 2, "{:#}", said.all);
    drop(stores);
}

const TOO_FAR_AHEAD: &[u8] = b"-ERR the request timestamp is too far in the future; ensure that the client and broker system clocks are synchronized\r\n";

/// A store whose clock is off by so many milliseconds, and that lets a client be ahead of it by so many, with a broker.
fn shifted(broker: &Mosquitto, shift: i64, allowed: i64) -> thread::JoinHandle<()> {
    let mut raw = Raw::connect(broker.port(), "shifted");
    raw.subscribe(REQUEST);
    thread::spawn(move || {
        loop {
            let request = raw.message();
            let time = unix_ms().checked_add_signed(shift).expect("a time");
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
fn clocks_that_are_off() {
    let Some(broker) = Mosquitto::start(&test_name()) else { return };
    let url = format!("mqtt://127.0.0.1:{}", broker.port());
    for (shift, allowed, seen, is_wrong) in [
        (300_000, 60_000, "ahead of", true),
        (-300_000, 60_000, "behind", true),
        (-30_000, 60_000, "from the limit of a minute", false),
        (-3_000, 1_000, "and it allows less: ", true),
    ] {
        let store = shifted(&broker, shift, allowed);
        let said = doctor(&url, &[]);
        let mut ends = Raw::connect(broker.port(), "ends");
        ends.publish(REQUEST, false, &b"stop"[..]);
        store.join().expect("it answers");
        let (verdict, was_seen, remedy) = said.about("clock");
        assert_eq!(verdict, if is_wrong { "wrong" } else { "warning" }, "{was_seen}");
        assert!(was_seen.contains(seen), "{was_seen}");
        assert!(remedy.contains("set both clocks"), "{remedy}");
        if shift == -3_000 {
            said.is_wrong(2, "clock", " s behind the one here, and it", "--max-clock-drift");
        } else if is_wrong {
            said.is_wrong(2, "clock", "beyond the limit of a minute", "set both clocks");
            assert!(
                ["the store's is 30", "the store's is 29"]
                    .iter()
                    .any(|part| was_seen.contains(part)),
                "{was_seen}"
            );
        }
    }
}

#[test]
fn what_is_no_broker() {
    use std::io::{Read as _, Write as _};
    use std::net::{Ipv4Addr, TcpListener};
    let answers: [&'static [u8]; 4] = [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        // A CONNACK of MQTT 3.1.1, a packet of 256 MiB, and a flood of what was not asked for.
        &[0x20, 2, 0, 1],
        &[0x30, 0xff, 0xff, 0xff, 0x7f],
        &[0xd0, 0],
    ];
    for answer in answers {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let url = format!("mqtt://{}", listener.local_addr().expect("its address"));
        let serves = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            let mut connect = [0; 14];
            let _ = stream.read_exact(&mut connect);
            // Until nobody reads any more.
            while stream
                .write_all(&answer.repeat(1 + 1_000 * usize::from(answer.len() == 2)))
                .is_ok()
            {}
        });
        let said = doctor(&url, &["--timeout", "2s"]);
        assert!([Some(2), Some(3)].contains(&said.code), "{:#}", said.all);
        let verdict = said.all["verdict"].as_str().expect("text");
        assert!(verdict.starts_with("login: "), "{:#}", said.all);
        serves.join().expect("it ends");
    }
}

/// What answers CONNECT with this, and then says that over and over, whatever it is asked, until its client leaves.
fn speaks(connack: Vec<u8>, over_and_over: Vec<u8>) -> (String, thread::JoinHandle<()>) {
    use std::io::{Read as _, Write as _};
    use std::net::{Ipv4Addr, TcpListener};
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let url = format!("mqtt://{}", listener.local_addr().expect("its address"));
    let serves = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let _ = stream.read(&mut [0; 1_024]);
        let _ = stream.write_all(&connack);
        match over_and_over.is_empty() {
            true => while stream.read(&mut [0; 1_024]).is_ok_and(|count| count > 0) {},
            false => while stream.write_all(&over_and_over).is_ok() {},
        }
    });
    (url, serves)
}

#[test]
fn a_broker_that_floods_is_left_in_time() {
    let publish = [&[0x30, 100, 0, 1, b't', 0][..], &[b'v'; 96]].concat();
    let (url, serves) = speaks(vec![0x20, 3, 0, 0, 0], publish.repeat(1_000));
    let said = doctor(&url, &["--timeout", "5s"]);
    said.is_wrong(3, "responses", "does not answer SUBSCRIBE", "the log of the broker");
    serves.join().expect("it ends");
}

#[test]
fn a_broker_that_takes_next_to_nothing() {
    // A CONNACK with a Maximum Packet Size of 200, and nothing else.
    let (url, serves) = speaks(vec![0x20, 8, 0, 0, 5, 0x27, 0, 0, 0, 200], Vec::new());
    let said = doctor(&url, &[]);
    said.is_wrong(2, "limits", "packets of 200 bytes", "a request is larger");
    assert_eq!(said.about("request").0, "skipped");
    serves.join().expect("it ends");
}

/// What answers requests with something else is no store.
#[test]
fn answers_that_are_none() {
    let Some(broker) = Mosquitto::start(&test_name()) else { return };
    let url = format!("mqtt://127.0.0.1:{}", broker.port());
    let mut raw = Raw::connect(broker.port(), "other");
    raw.subscribe(REQUEST);
    let answers = thread::spawn(move || {
        let request = raw.message();
        raw.reply_to(&request, &[0xa5; 1_000]);
        raw
    });
    let said = doctor(&url, &[]);
    said.is_wrong(2, "answer", "it is none to a GET", "it is no state store");
    drop(answers.join().expect("it answers"));
}

#[test]
fn one_broker_after_the_other() {
    let (own, nobody) = (Own::start(&[]), Port::free());
    let (own, nobody) = (own.port, nobody.number());
    let mut two = statestore();
    two.args(["doctor", "--broker"]);
    two.arg(format!("mqtt://127.0.0.1:{own},mqtt://127.0.0.1:{nobody}"));
    let said = run(&mut two);
    assert_eq!(said.code, Some(3), "{said:?}");
    let heads = said.text().lines().filter(|line| line.starts_with("mqtt://"));
    let heads: Vec<_> = heads.collect();
    assert!(
        heads[0].starts_with(&format!("mqtt://127.0.0.1:{own}: nothing is wrong")),
        "{heads:?}"
    );
    let second = format!("mqtt://127.0.0.1:{nobody}: port: no server listens on port {nobody}");
    assert_eq!(heads[1..], [&*second]);
    run(statestore().args(["doctor", "--broker", "mqtt://a,http://b"])).fails(2, &["http://b"]);
    run(statestore().args(["doctor", "--broker", "mqtts://a", "--tls-ca", "/no/such"]))
        .fails(2, &["--tls-ca: /no/such: No such file"]);
}

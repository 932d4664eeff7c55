//! The log of `serve` under many errors, and without a reader.

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use statestore_proto::topic::REQUEST;
use statestore_testkit::wire::raw::{Raw, RawRequest, unix_ms, words};

use crate::deployment::{Mode, in_each_mode};
use crate::process::{Running, run, statestore};

in_each_mode!(
    unread_log_does_not_block_clients,
    client_ahead_of_the_clock_is_named,
    request_that_cannot_get_a_response_is_logged_with_its_client,
    notification_beyond_the_packet_size_of_the_broker_is_logged_on_short_lines,
);

/// An external broker does not report messages that reach no store.
#[test]
fn message_to_a_misspelt_request_topic_is_logged_with_its_client() {
    let store = Running::start(statestore().args(SERVE));
    let mut raw = Raw::connect(port_of(&store.line()), "lamp-7");
    for _ in 0..1_000 {
        raw.publish(&format!("{REQUEST}/"), false, "*2");
    }
    assert_eq!(raw.command(&["SET", "k", "v"]), b"+OK\r\n");
    raw.publish("lamps/7", false, "on");
    store.signal("-TERM");
    let ended = store.end();
    let is_it = |line: &&str| line.contains("message reaches no store");
    let lines: Vec<&str> = ended.err.lines().filter(is_it).collect();
    assert!((1..100).contains(&lines.len()), "rate-limited: {}", lines.len());
    for part in ["WARN", "lamp-7", "invoke/", &format!("must be sent to {REQUEST}")] {
        assert!(lines[0].contains(part), "{part}: {}", lines[0]);
    }
}

/// A command line of a server on a free port.
const SERVE: [&str; 3] = ["serve", "--listen", "127.0.0.1:0"];

fn port_of(line: &str) -> u16 {
    let port = line.split(';').next().and_then(|url| url.rsplit(':').next()?.parse().ok());
    port.unwrap_or_else(|| panic!("{line:?}"))
}

fn unread_log_does_not_block_clients(mode: Mode) {
    let Some(mut here) = mode.start(&[]) else { return };
    here.kill_store();
    let mut store = here.serve();
    store.env("STATESTORE_LOG", "trace").stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut store = store.spawn().expect("it starts");
    let mut line = String::new();
    let mut out = BufReader::new(store.stdout.take().expect("piped"));
    out.read_line(&mut line).expect("text");
    // This is far more than a pipe can hold.
    let mut raw = here.raw("raw");
    for _ in 0..500 {
        assert_eq!(raw.command(&["SET", "k", "v"]), b"+OK\r\n");
    }
    let log = store.stderr.take();
    let status = Command::new("kill").args(["-TERM", &store.id().to_string()]).status();
    assert!(status.is_ok_and(|status| status.success()), "kill");
    assert_eq!(
        store.wait().expect("it ends").code(),
        Some(0),
        "although standard error is not read"
    );
    drop(log);
}

#[test]
fn frequent_log_lines_are_counted() {
    let web = ["--listen-websocket", "127.0.0.1:0"];
    let store = Running::start(statestore().args(SERVE).args(web));
    let line = store.line();
    let address = line.split(" and ws://").nth(1).and_then(|rest| rest.split(';').next());
    let address = address.unwrap_or_else(|| panic!("{line:?}"));
    let port = line.split(" and ").next().map(port_of).expect("the MQTT listener");
    let mut one = Raw::connect(port, "one");
    let refused = 300;
    for _ in 0..refused {
        let mut stream = TcpStream::connect(address).expect("connect");
        stream.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("write");
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    }
    assert_eq!(one.command(&["SET", "k", "v"]), b"+OK\r\n");
    store.signal("-TERM");
    let ended = store.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let lines = || ended.err.lines().filter(|line| line.contains("WebSocket handshake failed"));
    let left_out = |line: &str| {
        let count = line.split("; ").find_map(|part| part.strip_suffix(" more like this in 10 s"));
        count.map(|count| count.parse::<usize>().expect("a count"))
    };
    let written = lines().filter(|line| left_out(line).is_none()).count();
    let counts: Vec<usize> = lines().filter_map(left_out).collect();
    assert_eq!(written + counts.iter().sum::<usize>(), refused, "{}", ended.err);
    // A busy machine needs more than one period of ten seconds, and the last one may end early.
    let periods = counts.len() + 1;
    assert!((10..=10 * periods).contains(&written), "ten in each period: {}", ended.err);
    assert!(lines().next().is_some_and(|line| line.contains("peer=127.0.0.1:")), "{}", ended.err);
}

#[test]
fn serve_raises_the_limit_of_open_files() {
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -S -n 40; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_statestore")]);
    let store = Running::start(limited.args(SERVE));
    let port = port_of(&store.line());
    let many: Vec<_> = (0..60).map(|at| Raw::connect(port, &format!("client-{at}"))).collect();
    assert_eq!(many.len(), 60);
    store.signal("-TERM");
    assert_eq!(store.end().code, Some(0));
}

#[test]
fn store_without_file_descriptors_reports_it_and_continues() {
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -n 40; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_statestore")]);
    let store = Running::start(limited.args(SERVE));
    let port = port_of(&store.line());
    let connect = || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("it listens");
    let many: Vec<_> = (0..60).map(|_| connect()).collect();
    let warning = store.complaint();
    assert!(warning.contains("the limit of open files is 40, too low for"), "{warning}");
    let message = store.complaint();
    for part in ["accept failed: raise the limit", "max-connections", "Too many open files"] {
        assert!(message.contains(part), "{message}");
    }
    drop(many);
    let mut one = Raw::connect(port, "one");
    assert_eq!(one.command(&["SET", "k", "v"]), b"+OK\r\n");
    store.signal("-TERM");
    let ended = store.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.err.lines().count() < 40, "{}", ended.err);
}

/// Silent connections that use all file descriptors end before their timeout of ten seconds, also
/// those of another listener.
#[test]
#[expect(clippy::disallowed_methods, reason = "compared with the timeout of silent connections")]
fn client_logs_in_while_silent_connections_use_all_file_descriptors() {
    for is_same_listener in [true, false] {
        let mut limited = Command::new("sh");
        limited.args(["-c", "ulimit -n 40; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_statestore")]);
        let store = Running::start(limited.args(SERVE).args(["--listen", "127.0.0.1:0"]));
        let line = store.line();
        let (first, second) = line.split_once(" and ").unwrap_or_else(|| panic!("{line:?}"));
        let attacked = if is_same_listener { first } else { second };
        let connect =
            || TcpStream::connect((Ipv4Addr::LOCALHOST, port_of(attacked))).expect("it listens");
        let begun = Instant::now();
        let mut oldest = connect();
        let silent: Vec<_> = (0..60).map(|_| connect()).collect();
        let ends = std::thread::spawn(move || {
            let _ = oldest.read(&mut [0]);
            begun.elapsed()
        });
        for number in 0..3 {
            let mut client = Raw::connect(port_of(first), &format!("client-{number}"));
            assert_eq!(client.command(&["SET", "k", "v"]), b"+OK\r\n");
        }
        let lasted = ends.join().expect("it ends");
        assert!(lasted < Duration::from_secs(10), "{lasted:?}");
        drop(silent);
        store.signal("-TERM");
        let ended = store.end();
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(ended.err.lines().count() < 60, "{}", ended.err);
    }
}

#[test]
fn invalid_filter_is_bad_input() {
    let mut get = statestore();
    get.args(["get", "k"]);
    for filter in ["=x=[", "verbose", "info,warnings"] {
        get.env("STATESTORE_LOG", filter);
        run(&mut get).fails(2, &["STATESTORE_LOG", "use error, warn, info, debug"]);
    }
    let full = std::fs::File::options().write(true).open("/dev/full").expect("every Linux has it");
    let status = get.stderr(full).stdout(Stdio::null()).status().expect("it runs");
    assert_eq!(status.code(), Some(2), "although standard error is not read");
}

/// Each rejected request is logged on one line, with its client and key but without its value.
fn client_ahead_of_the_clock_is_named(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    let mut raw = here.raw("liar");
    let mut set = |name: &str, ahead_s: u64| {
        let ask = RawRequest::deployed("liar", words(&["SET", "two\nlines", "secret"]));
        raw.answer(&ask.replacing(name, format!("{}:0:liar", unix_ms() + 1_000 * ahead_s)));
        let message = here.store().complaint();
        assert!(message.contains("client=\"liar\"") && !message.contains("secret"), "{message}");
        message
    };
    let ahead = set("__ts", 30);
    assert!(
        ahead.contains("write moved the versions of all keys ahead of the wall clock"),
        "{ahead}"
    );
    assert!(ahead.contains("ahead_s=30") || ahead.contains("ahead_s=2"), "{ahead}");
    let fenced = set("__ft", 40);
    assert!(
        fenced.contains("fencing token ahead of the wall clock") && fenced.contains(r"two\nlines"),
        "{fenced}"
    );
    // Later versions are ahead of the clock too.
    let followed = here.store().complaint();
    assert!(
        followed.contains("write moved the versions of all keys ahead of the wall clock"),
        "{followed}"
    );
    assert!(set("__ts", 100).contains("reason=TimestampSkew"));
    assert!(set("__ft", 100).contains("reason=FencingTokenSkew"));
}

fn request_that_cannot_get_a_response_is_logged_with_its_client(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    let mut raw = here.raw("lamp");
    let missing = (None, "must set the MQTT 5 property response topic");
    // The embedded broker itself rejects forbidden response topics.
    let forbidden = (Some(REQUEST.to_owned()), "response topic forbidden");
    let cases = if mode == Mode::External { vec![missing, forbidden] } else { vec![missing] };
    for (topic, part) in cases {
        let mut ask = RawRequest::deployed("lamp", words(&["SET", "k", "secret"]));
        ask.response_topic = topic;
        raw.send(&ask);
        let logged = here.store().complaint();
        assert!(logged.contains(part) && logged.contains("client=\"lamp\""), "{logged}");
    }
}

fn notification_beyond_the_packet_size_of_the_broker_is_logged_on_short_lines(mode: Mode) {
    if mode != Mode::External {
        return mode.skip("its broker has no limit below that of the store");
    }
    let Some(here) = mode.start_with(&[], "max_packet_size 3000") else { return };
    let mut raw = here.raw("raw");
    // Its topic contains the key twice as long.
    let key = "k".repeat(2_000);
    assert_eq!(raw.command(&["KEYNOTIFY", &key]), b"+OK\r\n");
    assert_eq!(raw.command(&["SET", &key, "v"]), b"+OK\r\n");
    for part in
        ["not sent topic=", "notification not sent: it exceeds the broker's Maximum Packet Size"]
    {
        let logged = here.store().complaint();
        assert!(logged.contains(part) && logged.len() < 400, "{part}: {logged}");
    }
}

#[test]
fn spaces_and_modules_in_the_filter_leave_warnings_enabled() {
    for filter in ["", "warn ", " info,", "statestore_sqlite=debug", "info, statestore_sqlite=off "]
    {
        let store = Running::start(statestore().args(SERVE).env("STATESTORE_LOG", filter));
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port_of(&store.line())));
        let stream = stream.as_mut().expect("it listens");
        stream.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("write");
        let _ = std::io::copy(stream, &mut std::io::sink());
        store.signal("-TERM");
        let ended = store.end();
        assert_eq!(ended.code, Some(0), "{filter:?}: {ended:?}");
        assert!(ended.err.contains("WARN statestore_server"), "{filter:?}: {}", ended.err);
        assert_eq!(ended.err.contains("INFO"), filter.contains("info"), "{filter:?}");
    }
}

#[test]
fn open_file_limit_below_the_minimum_is_bad_input() {
    // With a lower limit, the runtime cannot be built, and the error is that of the system.
    for limit in 12..16 {
        let mut limited = Command::new("sh");
        let script = format!("ulimit -n {limit}; exec \"$@\"");
        limited.args(["-c", &script, "sh", env!("CARGO_BIN_EXE_statestore")]);
        run(limited.args(SERVE)).fails(2, &[&format!("open files is {limit}: raise it to 16")]);
    }
}

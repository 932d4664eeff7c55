//! The drawn screen after key presses and updates.

use std::time::{Duration, Instant};

use bytes::Bytes;
use crossterm::event::{KeyCode, KeyEvent};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use statestore_tokio::Version;

use super::draw::draw;
use super::metrics::Metrics;
use super::state::{Action, Condition, KEY_BYTES_MAX, KEYS_MAX, Screen, Update};
use statestore_server::http::TrafficTable as Traffic;

fn version(text: &str) -> Version {
    Version::new(text.parse().expect("a version"))
}

fn drawn(screen: &mut Screen, columns: u16, rows: u16, now: Instant) -> String {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).expect("a terminal");
    let _ = terminal.draw(|frame| draw(frame, screen, "mqtt://h:1883", now));
    terminal.backend().to_string()
}

/// Returns a screen with these keys.
fn listed(keys: &[&'static str]) -> Screen {
    let mut screen = Screen::new("*".to_owned());
    let now = tokio::time::Instant::now().into_std();
    assert_eq!(screen.list(), Action::List);
    screen.update(Update::Online, now);
    for key in keys {
        screen.update(Update::Key(Bytes::from_static(key.as_bytes())), now);
    }
    screen.update(Update::Listed(None), now);
    screen
}

fn press(screen: &mut Screen, code: KeyCode) -> Option<Action> {
    screen.key(KeyEvent::from(code))
}

fn type_in(screen: &mut Screen, text: &str) {
    for char in text.chars() {
        assert_eq!(press(screen, KeyCode::Char(char)), None);
    }
}

#[test]
fn selected_key_shows_its_changes() {
    let mut screen = listed(&["b", "a", "\u{1b}[2J"]);
    let now = tokio::time::Instant::now().into_std();
    let shown = drawn(&mut screen, 80, 20, now);
    assert!(shown.contains("* (all: 3)") && shown.contains("\\x1b[2J"), "{shown}");
    press(&mut screen, KeyCode::Down);
    let watched = press(&mut screen, KeyCode::Down);
    assert_eq!(watched, Some(Action::Watch(Bytes::from_static(b"a"))));
    let a = Bytes::from_static(b"a");
    let changed = |value: &'static [u8], at: &str| {
        Update::Changed(Bytes::from_static(b"a"), Some(value.into()), Some(version(at)))
    };
    screen.update(changed(b"{\"t\":21}", "1000:0:s"), now);
    screen.update(Update::Live(a.clone()), now);
    let shown = drawn(&mut screen, 80, 20, now);
    for part in ["live", "version 1000:0:s", "expires unknown, fence unknown", "8 bytes, as text:"]
    {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    press(&mut screen, KeyCode::Char('v'));
    let shown = drawn(&mut screen, 80, 20, now);
    assert!(shown.contains("as JSON:") && shown.contains("\"t\": 21"), "{shown}");
    screen.update(changed(b"22", "2000:0:s"), now);
    assert!(drawn(&mut screen, 80, 20, now).contains("live, 1 change"));
    // Updates of other keys are ignored.
    screen.update(Update::Gap(Bytes::from_static(b"b")), now);
    screen.update(Update::Changed(a, None, None), now);
    let shown = drawn(&mut screen, 80, 20, now);
    assert!(shown.contains("live, 2 changes") && shown.contains("no value"), "{shown}");
    assert!(shown.contains("* (all: 2)"), "the deleted key is not listed: {shown}");
}

#[test]
fn edited_value_is_set_only_if_unchanged() {
    let mut screen = listed(&["k"]);
    let now = tokio::time::Instant::now().into_std();
    press(&mut screen, KeyCode::Char('e'));
    assert!(drawn(&mut screen, 80, 20, now).contains("select a key first"));
    press(&mut screen, KeyCode::Down);
    let k = Bytes::from_static(b"k");
    let (old, at) = (Bytes::from_static(b"old"), version("1000:0:s"));
    screen.update(Update::Changed(k.clone(), Some(old.clone().into()), Some(at)), now);
    screen.update(Update::Live(k.clone()), now);
    press(&mut screen, KeyCode::Char('e'));
    type_in(&mut screen, "er");
    press(&mut screen, KeyCode::Down);
    type_in(&mut screen, "10");
    assert_eq!(press(&mut screen, KeyCode::Enter), None);
    assert!(drawn(&mut screen, 80, 20, now).contains("write it like 500ms or 3s"));
    type_in(&mut screen, "s");
    let shown = drawn(&mut screen, 80, 20, now);
    assert!(shown.contains("value: older") && shown.contains("expires after: 10s_"), "{shown}");
    let Some(Action::Set(write)) = press(&mut screen, KeyCode::Enter) else { panic!("no write") };
    assert_eq!(
        (&write.value.0[..], &write.condition),
        (&b"older"[..], &Condition::IfUnchanged(old.into()))
    );
    let mut other = write.clone();
    other.condition = Condition::Always;
    // The notification can arrive before the response.
    let at = version("2000:0:s");
    screen.update(Update::Changed(k.clone(), Some(write.value.clone()), Some(at.clone())), now);
    screen.update(Update::Set(write, Ok(Some(at))), now);
    let later = now + Duration::from_millis(3_500);
    assert!(drawn(&mut screen, 80, 20, later).contains("expires in 7 s, fence none"));
    screen.update(Update::Set(other, Ok(None)), now);
    assert!(drawn(&mut screen, 80, 20, now).contains("k: not set: the value has changed"));
    // The expiry of another client's value is unknown.
    screen
        .update(Update::Changed(k.clone(), Some(k.clone().into()), Some(version("3000:0:s"))), now);
    assert!(drawn(&mut screen, 80, 20, now).contains("expires unknown"));
    press(&mut screen, KeyCode::Char('d'));
    assert_eq!(press(&mut screen, KeyCode::Char('n')), None);
    press(&mut screen, KeyCode::Char('d'));
    assert_eq!(
        press(&mut screen, KeyCode::Char('y')),
        Some(Action::Remove(k.clone(), k.into(), None))
    );
}

#[test]
fn keys_and_input_are_limited() {
    let mut screen = listed(&[]);
    let now = tokio::time::Instant::now().into_std();
    for number in 0..KEYS_MAX + 5 {
        screen.update(Update::Key(number.to_string().into()), now);
    }
    assert_eq!(screen.keys.len(), KEYS_MAX);
    assert!(drawn(&mut screen, 80, 20, now).contains("(the first: 10000)"));
    screen.list();
    for number in 0..100 {
        screen.update(Update::Key(format!("{number:030000}").into()), now);
    }
    assert!(screen.keys.iter().map(Bytes::len).sum::<usize>() <= KEY_BYTES_MAX);
    // A key that is deleted and set repeatedly does not use up the limit.
    screen.list();
    press(&mut screen, KeyCode::Char('g'));
    type_in(&mut screen, "flapping");
    press(&mut screen, KeyCode::Enter);
    let key = Bytes::from_static(b"flapping");
    for _ in 0..=KEY_BYTES_MAX / key.len() {
        let value = Some("v".into());
        screen.update(Update::Changed(key.clone(), value, Some(version("1000:0:s"))), now);
        screen.update(Update::Changed(key.clone(), None, None), now);
    }
    assert!(!screen.is_truncated);
    press(&mut screen, KeyCode::Char('/'));
    type_in(&mut screen, &"x".repeat(5_000));
    press(&mut screen, KeyCode::Enter);
    assert!(screen.pattern.len() <= 4 << 10);
}

#[test]
fn listed_key_does_not_keep_its_page_in_memory() {
    let mut screen = listed(&[]);
    let now = tokio::time::Instant::now().into_std();
    let page = Bytes::from(vec![b'k'; 64 << 10]);
    screen.update(Update::Key(page.slice(..3)), now);
    let selected = press(&mut screen, KeyCode::Down);
    assert_eq!(selected, Some(Action::Watch(Bytes::from_static(b"kkk"))));
    let value = Some("v".into());
    screen.update(Update::Changed(page.slice(..3), value, Some(version("1000:0:s"))), now);
    assert!(page.is_unique(), "nothing else refers to the page");
}

#[test]
fn long_key_takes_one_row() {
    let long = "\u{1f511}\u{1b}[2J and a key of several rows ".repeat(100);
    for (columns, rows) in [(50, 10), (80, 20)] {
        let mut screen = listed(&["a", "z"]);
        let now = tokio::time::Instant::now().into_std();
        screen.update(Update::Key(long.clone().into()), now);
        screen.update(Update::Key(Bytes::from(vec![b'b'; 300])), now);
        let shown = drawn(&mut screen, columns, rows, now);
        let row = |start: &str| shown.lines().position(|line| line.starts_with(start));
        let a = row("\"│a ").expect("the first key");
        assert_eq!(row("\"│bbb"), Some(a + 1), "{shown}");
        assert_eq!(row("\"│z "), Some(a + 2), "{shown}");
        assert_eq!(row("\"│\\xf0"), Some(a + 3), "{shown}");
        assert_eq!(shown.matches('…').count(), 2, "{shown}");
    }
}

#[test]
fn long_pattern_does_not_hide_the_number_of_keys() {
    let mut screen = Screen::new("x".repeat(300));
    let now = tokio::time::Instant::now().into_std();
    screen.update(Update::Listed(None), now);
    assert!(drawn(&mut screen, 80, 20, now).contains("x… (all: 0) "));
}

#[test]
fn byte_limit_is_given_back_when_keys_go_away() {
    let mut screen = listed(&[]);
    let now = tokio::time::Instant::now().into_std();
    let key = |first: u8| {
        let mut key = vec![b'k'; KEY_BYTES_MAX / 2];
        key[0] = first;
        Bytes::from(key)
    };
    let fill = |screen: &mut Screen| {
        for first in *b"ab" {
            screen.update(Update::Key(key(first)), now);
        }
        // A key that is already listed takes nothing.
        screen.update(Update::Key(key(b'a')), now);
    };
    fill(&mut screen);
    assert_eq!((screen.keys.len(), screen.is_truncated), (2, false));
    screen.update(Update::Key(Bytes::from_static(b"c")), now);
    assert_eq!((screen.keys.len(), screen.is_truncated), (2, true));
    // Another list replaces it.
    screen.list();
    fill(&mut screen);
    assert_eq!((screen.keys.len(), screen.is_truncated), (2, false));
    // A listed key is deleted.
    press(&mut screen, KeyCode::Down);
    screen.update(Update::Changed(key(b'a'), None, None), now);
    screen.update(Update::Key(Bytes::from_static(b"c")), now);
    assert_eq!((screen.keys.len(), screen.is_truncated), (2, false));
}

#[test]
fn key_is_selected_by_name_without_a_listing() {
    let mut screen = listed(&[]);
    let now = tokio::time::Instant::now().into_std();
    screen.update(Update::Listed(Some("SCAN is not supported".to_owned())), now);
    screen.update(Update::Offline("no route\u{1b}[2J".to_owned()), now);
    let shown = drawn(&mut screen, 80, 20, now);
    assert!(
        shown.contains("SCAN is not supported") && shown.contains("press g to go to a key"),
        "{shown}"
    );
    assert!(shown.contains("not connected: no route\\u001b"), "{shown}");
    press(&mut screen, KeyCode::Char('g'));
    type_in(&mut screen, "a\\n");
    assert_eq!(press(&mut screen, KeyCode::Enter), Some(Action::Watch(Bytes::from_static(b"a\n"))));
}

#[test]
fn metrics_are_shown() {
    let mut screen = listed(&[]);
    let begun = tokio::time::Instant::now().into_std();
    press(&mut screen, KeyCode::Char('2'));
    assert!(drawn(&mut screen, 80, 24, begun).contains("serve --metrics-listen"));
    let metrics = |count: u64, at| {
        let text = format!(
            "statestore_keys 7\nstatestore_requests_total{{verb=\"get\",verdict=\"applied\"}} {count}\n\
             statestore_refusals_total{{reason=\"syntax\"}} 3\n\
             statestore_request_duration_seconds_bucket{{le=\"0.0005\"}} {count}\n\
             statestore_request_duration_seconds_bucket{{le=\"+Inf\"}} {count}\n\
             statestore_request_duration_seconds_count {count}\n"
        );
        Update::Metrics(Box::new(Metrics::parse(&text, at)))
    };
    screen.update(metrics(100, begun), begun);
    screen.update(metrics(150, begun + Duration::from_secs(2)), begun);
    let shown = drawn(&mut screen, 80, 24, begun);
    for part in ["keys 7", "p50 0.5 ms", "150", "25.0", "syntax"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    screen.update(Update::Metrics(Box::new(Err("HTTP status 503".to_owned()))), begun);
    assert!(drawn(&mut screen, 80, 24, begun).contains("HTTP status 503"));
}

#[test]
fn every_terminal_size_is_drawn() {
    let mut screen = listed(&["a", "b"]);
    press(&mut screen, KeyCode::Down);
    press(&mut screen, KeyCode::Char('e'));
    let now = tokio::time::Instant::now().into_std();
    for columns in [1, 20, 49, 50, 51, 80, 300] {
        for rows in [1, 5, 9, 10, 11, 24, 100] {
            let shown = drawn(&mut screen, columns, rows, now);
            assert_eq!(shown.contains(" 1 keys "), columns >= 50 && rows >= 10, "{columns}x{rows}");
        }
    }
}

#[test]
fn keys_are_listed_again_after_a_lost_connection() {
    let mut screen = listed(&["gone"]);
    let now = tokio::time::Instant::now().into_std();
    assert_eq!(screen.due_action(), None);
    screen.update(Update::Offline("refused".to_owned()), now);
    assert_eq!(screen.due_action(), None, "not connected");
    screen.update(Update::Online, now);
    assert_eq!(screen.due_action(), Some(Action::List));
    assert!(!drawn(&mut screen, 80, 20, now).contains("gone"));
    assert_eq!(screen.due_action(), None, "once");
}

#[test]
fn editor_opens_again_if_set_fails() {
    let mut screen = listed(&["k"]);
    let now = tokio::time::Instant::now().into_std();
    press(&mut screen, KeyCode::Down);
    let k = Bytes::from_static(b"k");
    screen
        .update(Update::Changed(k.clone(), Some(k.clone().into()), Some(version("1000:0:s"))), now);
    screen.update(Update::Live(k.clone()), now);
    press(&mut screen, KeyCode::Char('e'));
    type_in(&mut screen, " and more");
    let Some(Action::Set(write)) = press(&mut screen, KeyCode::Enter) else { panic!("no write") };
    assert!(!drawn(&mut screen, 80, 20, now).contains("k and more"));
    screen.update(Update::Set(write, Ok(None)), now);
    let shown = drawn(&mut screen, 80, 20, now);
    assert!(shown.contains("value: k and more_") && shown.contains("k: not set"), "{shown}");
    press(&mut screen, KeyCode::Esc);
    // The next key press dismisses the message. Esc does not quit.
    assert_eq!(press(&mut screen, KeyCode::Esc), None);
    let shown = drawn(&mut screen, 80, 20, now);
    assert!(shown.contains("q quit, ? help") && !shown.contains("not set"), "{shown}");
    screen.update(Update::Changed(k, None, Some(version("2000:0:s"))), now);
    let shown = drawn(&mut screen, 80, 20, now);
    assert!(shown.contains("no value") && !shown.contains("version"), "{shown}");
}

#[test]
fn traffic_is_shown_in_each_order() {
    let mut screen = listed(&[]);
    let now = tokio::time::Instant::now().into_std();
    press(&mut screen, KeyCode::Char('3'));
    assert!(drawn(&mut screen, 100, 20, now).contains("--traffic"));
    screen.update(Update::Traffic(Err("this store does not count".to_owned())), now);
    assert!(drawn(&mut screen, 100, 20, now).contains("this store does not count"));
    let json = r#"{
        "clients": [
            {"client":"fast","verified":true,"requests":900,"refused":0,"per_second":12.5,"ahead_ms":-3},
            {"client":"skewed\u001b[2J","verified":false,"requests":20,"refused":19,"per_second":0.5,"ahead_ms":300000},
            {"client":"reader","verified":true,"requests":1000,"refused":1,"per_second":0.1,"ahead_ms":null}
        ],
        "keys": [
            {"key":"read","requests":70,"writes":0,"refused":1,"per_second":9.0},
            {"key_base64":"/wA=","requests":60,"writes":50,"refused":2,"per_second":1.0}
        ]
    }"#;
    screen.update(Update::Traffic(Traffic::decode(json)), now);
    let shown = drawn(&mut screen, 100, 20, now);
    for row in [
        "    12.5       900         0     -3 ms  fast ",
        r"     0.5        20        19    +300 s  skewed\x1b[2J (claimed) ",
        "     0.1      1000         1         -  reader ",
        "     9.0        70         1         0  read ",
        r"     1.0        60         2        50  \xff\x00 ",
    ] {
        assert!(shown.contains(row), "{row}: {shown}");
    }
    let mut orders = Vec::new();
    for _ in 0..4 {
        let shown = drawn(&mut screen, 100, 20, now);
        let place = |name: &str| shown.find(name).unwrap_or_else(|| panic!("{name}: {shown}"));
        let mut clients = ["fast", "skewed", "reader"];
        clients.sort_by_key(|name| place(&format!("  {name}")));
        let mut keys = ["read ", r"\xff"];
        keys.sort_by_key(|name| place(&format!("  {name}")));
        orders.push((clients, keys[0]));
        assert_eq!(press(&mut screen, KeyCode::Char('s')), None);
    }
    let expected = [
        (["fast", "skewed", "reader"], "read "),
        (["reader", "fast", "skewed"], "read "),
        (["skewed", "reader", "fast"], r"\xff"),
        (["skewed", "fast", "reader"], r"\xff"),
    ];
    assert_eq!(orders, expected);
    // The smallest terminal shows a part of both tables.
    let shown = drawn(&mut screen, 50, 10, now);
    assert!(shown.contains("fast") && shown.contains("read"), "{shown}");
    for key in [KeyCode::Tab, KeyCode::Tab] {
        press(&mut screen, key);
    }
    assert!(drawn(&mut screen, 100, 20, now).contains("no metrics"));
}

//! The screen as it is drawn, from keys and news.

use std::time::{Duration, Instant};

use bytes::Bytes;
use crossterm::event::{KeyCode, KeyEvent};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use statestore_tokio::Version;

use super::draw::draw;
use super::numbers::Numbers;
use super::state::{Action, Condition, KEY_BYTES_MAX, KEYS_MAX, News, Screen};
use crate::traffic::Traffic;

fn version(text: &str) -> Version {
    Version::new(text.parse().expect("a version"))
}

fn drawn(screen: &mut Screen, columns: u16, rows: u16, now: Instant) -> String {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).expect("a terminal");
    let _ = terminal.draw(|frame| draw(frame, screen, "mqtt://h:1883", now));
    terminal.backend().to_string()
}

/// A listing of these keys.
fn listed(keys: &[&'static str]) -> Screen {
    let mut screen = Screen::new("*".to_owned());
    let now = tokio::time::Instant::now().into_std();
    assert_eq!(screen.list(), Action::List);
    screen.told(News::Online, now);
    for key in keys {
        screen.told(News::Key(Bytes::from_static(key.as_bytes())), now);
    }
    screen.told(News::Listed(None), now);
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
fn a_key_is_chosen_and_its_changes_are_shown() {
    let mut screen = listed(&["b", "a", "\u{1b}[2J"]);
    let now = tokio::time::Instant::now().into_std();
    let shown = drawn(&mut screen, 80, 20, now);
    assert!(shown.contains("* (all: 3)") && shown.contains("\\x1b[2J"), "{shown}");
    press(&mut screen, KeyCode::Down);
    let watched = press(&mut screen, KeyCode::Down);
    assert_eq!(watched, Some(Action::Watch(Bytes::from_static(b"a"))));
    let a = Bytes::from_static(b"a");
    let changed = |value: &'static [u8], at: &str| {
        News::Changed(Bytes::from_static(b"a"), Some(Bytes::from_static(value)), Some(version(at)))
    };
    screen.told(changed(b"{\"t\":21}", "1000:0:s"), now);
    screen.told(News::Live(a.clone()), now);
    let shown = drawn(&mut screen, 80, 20, now);
    for part in ["live", "version 1000:0:s", "expires unknown, fence unknown", "8 bytes, as text:"]
    {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    press(&mut screen, KeyCode::Char('v'));
    let shown = drawn(&mut screen, 80, 20, now);
    assert!(shown.contains("as JSON:") && shown.contains("\"t\": 21"), "{shown}");
    screen.told(changed(b"22", "2000:0:s"), now);
    assert!(drawn(&mut screen, 80, 20, now).contains("live, 1 change"));
    // What is told of another key is of no matter.
    screen.told(News::Gap(Bytes::from_static(b"b")), now);
    screen.told(News::Changed(a, None, None), now);
    let shown = drawn(&mut screen, 80, 20, now);
    assert!(shown.contains("live, 2 changes") && shown.contains("no value"), "{shown}");
    assert!(shown.contains("* (all: 2)"), "it is not listed any more: {shown}");
}

#[test]
fn what_was_edited_is_set_if_nobody_else_has() {
    let mut screen = listed(&["k"]);
    let now = tokio::time::Instant::now().into_std();
    press(&mut screen, KeyCode::Char('e'));
    assert!(drawn(&mut screen, 80, 20, now).contains("choose a key first"));
    press(&mut screen, KeyCode::Down);
    let k = Bytes::from_static(b"k");
    let (old, at) = (Bytes::from_static(b"old"), version("1000:0:s"));
    screen.told(News::Changed(k.clone(), Some(old.clone()), Some(at)), now);
    screen.told(News::Live(k.clone()), now);
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
    assert_eq!((&write.value[..], &write.condition), (&b"older"[..], &Condition::IfStill(old)));
    let mut other = write.clone();
    other.condition = Condition::Always;
    // Its notification may come before its answer, or after.
    let at = version("2000:0:s");
    screen.told(News::Changed(k.clone(), Some(write.value.clone()), Some(at.clone())), now);
    screen.told(News::Set(write, Ok(Some(at))), now);
    let later = now + Duration::from_millis(3_500);
    assert!(drawn(&mut screen, 80, 20, later).contains("expires in 7 s, fence none"));
    screen.told(News::Set(other, Ok(None)), now);
    assert!(drawn(&mut screen, 80, 20, now).contains("k: not set, it has another value"));
    // Another's value has another time.
    screen.told(News::Changed(k.clone(), Some(k.clone()), Some(version("3000:0:s"))), now);
    assert!(drawn(&mut screen, 80, 20, now).contains("expires unknown"));
    press(&mut screen, KeyCode::Char('d'));
    assert_eq!(press(&mut screen, KeyCode::Char('n')), None);
    press(&mut screen, KeyCode::Char('d'));
    assert_eq!(press(&mut screen, KeyCode::Char('y')), Some(Action::Remove(k.clone(), k, None)));
}

#[test]
fn what_is_kept_is_bounded() {
    let mut screen = listed(&[]);
    let now = tokio::time::Instant::now().into_std();
    for number in 0..KEYS_MAX + 5 {
        screen.told(News::Key(number.to_string().into()), now);
    }
    assert_eq!(screen.keys.len(), KEYS_MAX);
    assert!(drawn(&mut screen, 80, 20, now).contains("(the first: 10000)"));
    screen.list();
    for number in 0..100 {
        screen.told(News::Key(format!("{number:030000}").into()), now);
    }
    assert!(screen.keys.iter().map(Bytes::len).sum::<usize>() <= KEY_BYTES_MAX);
    press(&mut screen, KeyCode::Char('/'));
    type_in(&mut screen, &"x".repeat(5_000));
    press(&mut screen, KeyCode::Enter);
    assert!(screen.pattern.len() <= 4 << 10);
}

#[test]
fn a_store_that_lists_nothing_still_shows_a_key() {
    let mut screen = listed(&[]);
    let now = tokio::time::Instant::now().into_std();
    screen.told(News::Listed(Some("it knows no listing of keys".to_owned())), now);
    screen.told(News::Offline("no route\u{1b}[2J".to_owned()), now);
    let shown = drawn(&mut screen, 80, 20, now);
    assert!(shown.contains("it knows no listing") && shown.contains("g goes to a key"), "{shown}");
    assert!(shown.contains("not connected: no route\\u001b"), "{shown}");
    press(&mut screen, KeyCode::Char('g'));
    type_in(&mut screen, "a\\n");
    assert_eq!(press(&mut screen, KeyCode::Enter), Some(Action::Watch(Bytes::from_static(b"a\n"))));
}

#[test]
fn numbers_are_shown_as_they_come() {
    let mut screen = listed(&[]);
    let begun = tokio::time::Instant::now().into_std();
    press(&mut screen, KeyCode::Char('2'));
    assert!(drawn(&mut screen, 80, 24, begun).contains("serve --metrics"));
    let numbers = |count: u64, at| {
        let text = format!(
            "statestore_keys 7\nstatestore_requests_total{{verb=\"get\",verdict=\"applied\"}} {count}\n\
             statestore_refusals_total{{reason=\"syntax\"}} 3\n\
             statestore_request_duration_seconds_bucket{{le=\"0.0005\"}} {count}\n\
             statestore_request_duration_seconds_bucket{{le=\"+Inf\"}} {count}\n\
             statestore_request_duration_seconds_count {count}\n"
        );
        News::Numbers(Box::new(Numbers::parse(&text, at)))
    };
    screen.told(numbers(100, begun), begun);
    screen.told(numbers(150, begun + Duration::from_secs(2)), begun);
    let shown = drawn(&mut screen, 80, 24, begun);
    for part in ["keys 7", "p50 0.5 ms", "150", "25.0", "syntax"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    screen.told(News::Numbers(Box::new(Err("it answers 503".to_owned()))), begun);
    assert!(drawn(&mut screen, 80, 24, begun).contains("it answers 503"));
}

#[test]
fn every_size_of_terminal_will_do() {
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
    assert_eq!(screen.due(), None);
    screen.told(News::Offline("refused".to_owned()), now);
    assert_eq!(screen.due(), None, "nobody answers");
    screen.told(News::Online, now);
    assert_eq!(screen.due(), Some(Action::List));
    assert!(!drawn(&mut screen, 80, 20, now).contains("gone"));
    assert_eq!(screen.due(), None, "once");
}

#[test]
fn what_was_typed_is_there_again_if_it_was_not_set() {
    let mut screen = listed(&["k"]);
    let now = tokio::time::Instant::now().into_std();
    press(&mut screen, KeyCode::Down);
    let k = Bytes::from_static(b"k");
    screen.told(News::Changed(k.clone(), Some(k.clone()), Some(version("1000:0:s"))), now);
    screen.told(News::Live(k.clone()), now);
    press(&mut screen, KeyCode::Char('e'));
    type_in(&mut screen, " and more");
    let Some(Action::Set(write)) = press(&mut screen, KeyCode::Enter) else { panic!("no write") };
    assert!(!drawn(&mut screen, 80, 20, now).contains("k and more"));
    screen.told(News::Set(write, Ok(None)), now);
    let shown = drawn(&mut screen, 80, 20, now);
    assert!(shown.contains("value: k and more_") && shown.contains("k: not set"), "{shown}");
    press(&mut screen, KeyCode::Esc);
    // What was said goes with the next key, and Esc is not the end.
    assert_eq!(press(&mut screen, KeyCode::Esc), None);
    let shown = drawn(&mut screen, 80, 20, now);
    assert!(shown.contains("q ends, ? helps") && !shown.contains("not set"), "{shown}");
    screen.told(News::Changed(k, None, Some(version("2000:0:s"))), now);
    let shown = drawn(&mut screen, 80, 20, now);
    assert!(shown.contains("no value") && !shown.contains("version"), "{shown}");
}

#[test]
fn who_asks_for_what_is_shown_in_any_order() {
    let mut screen = listed(&[]);
    let now = tokio::time::Instant::now().into_std();
    press(&mut screen, KeyCode::Char('3'));
    assert!(drawn(&mut screen, 100, 20, now).contains("--traffic"));
    screen.told(News::Traffic(Err("this store does not count".to_owned())), now);
    assert!(drawn(&mut screen, 100, 20, now).contains("this store does not count"));
    let told = r#"{
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
    screen.told(News::Traffic(Traffic::decode(told)), now);
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
    // A terminal of the smallest size shows of both what there is room for.
    let shown = drawn(&mut screen, 50, 10, now);
    assert!(shown.contains("fast") && shown.contains("read"), "{shown}");
    for key in [KeyCode::Tab, KeyCode::Tab] {
        press(&mut screen, key);
    }
    assert!(drawn(&mut screen, 100, 20, now).contains("no numbers"));
}

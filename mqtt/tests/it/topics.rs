//! Topic names and filters, compared with oracles that work by characters and by levels.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use statestore_mqtt::topic::{self, Filter, is_filter, is_name, matches};

const LEVELS: [&str; 9] = ["", "a", "b", "ab", "+", "#", "$S", "a+", "$share"];

/// Oracle: checks the position of each wildcard, character by character.
fn is_filter_by_letters(text: &str) -> bool {
    let letters: Vec<char> = text.chars().collect();
    let begins = |at: usize| at == 0 || letters[at - 1] == '/';
    let stands_alone = |(at, letter): (usize, &char)| match letter {
        '#' => begins(at) && at + 1 == letters.len(),
        '+' => begins(at) && letters.get(at + 1).is_none_or(|next| *next == '/'),
        _ => true,
    };
    !letters.is_empty() && letters.iter().enumerate().all(stands_alone)
}

/// Oracle: share name and filter; `None` if the text is invalid.
fn parse(text: &str) -> Option<(Option<&str>, &str)> {
    let levels: Vec<&str> = text.split('/').collect();
    if levels[0] != "$share" || levels.len() == 1 {
        return is_filter_by_letters(text).then_some((None, text));
    }
    let name = levels[1];
    let rest = text.get("$share/".len() + name.len() + 1..)?;
    let is_legal = !name.is_empty() && !name.contains('+') && !name.contains('#');
    (is_legal && is_filter_by_letters(rest)).then_some((Some(name), rest))
}

/// Oracle: compares level by level.
fn covers(filter: &[&str], topic: &[&str]) -> bool {
    match (filter, topic) {
        (["#"], _) | ([], []) => true,
        (["+", filter @ ..], [_, topic @ ..]) => covers(filter, topic),
        ([level, filter @ ..], [name, topic @ ..]) => level == name && covers(filter, topic),
        _ => false,
    }
}

fn is_match(filter: &str, topic: &str) -> bool {
    let (filter, topic): (Vec<_>, Vec<_>) =
        (filter.split('/').collect(), topic.split('/').collect());
    let is_wild = matches!(filter[0], "+" | "#");
    !(is_wild && topic[0].starts_with('$')) && covers(&filter, &topic)
}

fn text() -> impl Strategy<Value = String> {
    vec(select(LEVELS.to_vec()), 1..5).prop_map(|levels| levels.join("/"))
}

fn name() -> impl Strategy<Value = String> {
    let levels = vec(select(vec!["", "a", "b", "$S"]), 0..4);
    (select(vec!["a", "b", "$S", "/"]), levels)
        .prop_map(|(first, levels)| [&[first], &levels[..]].concat().join("/"))
}

/// Filters built from the levels of the topic names, so that many of them match.
fn filter() -> impl Strategy<Value = String> {
    let levels = vec(select(vec!["", "a", "b", "+", "$S"]), 0..4);
    (select(vec!["a", "b", "+", "$S", "/"]), levels, any::<bool>()).prop_map(
        |(first, levels, is_open)| {
            let last: &[_] = if is_open { &["#"] } else { &[] };
            [&[first], &levels[..], last].concat().join("/")
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn filters_and_names_are_recognized(text in text()) {
        prop_assert_eq!(is_filter(&text), is_filter_by_letters(&text));
        let read = Filter::parse(&text).map(|Filter { share, filter }| (share, filter));
        prop_assert_eq!(read, parse(&text));
        let is_wild = |letter| matches!(letter, '+' | '#');
        prop_assert_eq!(is_name(&text), !text.is_empty() && !text.chars().any(is_wild));
    }

    #[test]
    fn filters_match_level_by_level(filter in filter(), topic in name()) {
        prop_assert!(is_filter(&filter) && is_name(&topic));
        prop_assert_eq!(matches(&filter, &topic), is_match(&filter, &topic));
        prop_assert!(matches(&topic, &topic), "a name matches itself");
        let shared = format!("$share/g/{filter}");
        prop_assert_eq!(Filter::parse(&shared).unwrap().matches(&topic), matches(&filter, &topic));
    }
}

/// The examples of section 4.7.
#[test]
fn examples_of_the_standard_match() {
    for (filter, topics, others) in [
        (
            "sport/tennis/player1/#",
            &["sport/tennis/player1", "sport/tennis/player1/score/wimbledon"][..],
            &["sport/tennis/player2", "sport/tennis"][..],
        ),
        ("sport/#", &["sport"], &["sports", "sport2/a"]),
        ("sport/tennis/+", &["sport/tennis/player1"], &["sport/tennis/player1/ranking"]),
        ("sport/+", &["sport/"], &["sport"]),
        ("+/+", &["/finance"], &["finance"]),
        ("/+", &["/finance"], &["finance", "/a/b"]),
        ("+", &["finance"], &["/finance", "$SYS"]),
        ("#", &["a", "/"], &["$SYS", "$SYS/monitor/Clients"]),
        ("+/monitor/Clients", &["a/monitor/Clients"], &["$SYS/monitor/Clients"]),
        ("$SYS/#", &["$SYS/monitor/Clients", "$SYS"], &["a"]),
        ("$SYS/monitor/+", &["$SYS/monitor/Clients"], &["$SYS/monitor"]),
        ("ACCOUNTS", &["ACCOUNTS"], &["Accounts"]),
    ] {
        assert!(topics.iter().all(|topic| matches(filter, topic)), "{filter}");
        assert!(!others.iter().any(|topic| matches(filter, topic)), "{filter}");
    }
}

/// All filters of up to three levels and all topics of up to four, built from a few characters.
#[test]
fn filter_covers_another_if_it_matches_all_topics_of_the_other() {
    fn all(levels: &[&str], count: usize) -> Vec<String> {
        let mut all: Vec<String> = levels.iter().map(|&level| level.into()).collect();
        let mut last = all.clone();
        for _ in 1..count {
            let pairs = last.iter().flat_map(|text| levels.iter().map(move |level| (text, level)));
            last = pairs.map(|(text, level)| format!("{text}/{level}")).collect();
            all.extend(last.iter().cloned());
        }
        all
    }
    let mut filters = all(&["a", "b", "$s", "+", "#"], 3);
    filters.retain(|filter| is_filter(filter));
    // `x` represents levels that occur in no filter.
    let topics = all(&["a", "b", "$s", "x"], 4);
    let matched = |filter: &String| -> Vec<bool> {
        topics.iter().map(|topic| matches(filter, topic)).collect()
    };
    let matches: Vec<_> = filters.iter().map(|filter| (filter, matched(filter))).collect();
    for (filter, own) in &matches {
        for (other, others) in &matches {
            let includes = own.iter().zip(others).all(|(own, other)| *own || !*other);
            // The documented false negative: both match the same topics.
            let is_known = filter.starts_with("+/#") && *other == "#";
            assert_eq!(topic::covers(filter, other), includes && !is_known, "{filter} {other}");
        }
    }
}

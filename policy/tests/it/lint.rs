//! What was hardly meant, found; and nothing found where all is well.

use statestore_policy::{Names, Policy};

fn warnings(document: &str) -> Vec<String> {
    let policy = Policy::parse(document).unwrap_or_else(|error| panic!("{error}"));
    policy.warnings().iter().map(ToString::to_string).collect()
}

const REQUEST: &str = "statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/command/invoke";

fn sound(rules: &str) -> String {
    format!(
        "rules:
  - principals: {{usernames: [a, b]}}
    brokerResources:
      - {{method: Connect}}
      - {{method: Publish, topics: [{REQUEST}]}}
      - {{method: Subscribe, topics: ['clients/{{principal.clientId}}/#', 'clients/statestore/+/+/+/command/notify/+']}}
    stateStoreResources:
      - {{method: ReadWrite, keys: ['own/{{principal.username}}/*']}}
{rules}"
    )
}

#[test]
fn a_sound_document_has_no_warnings() {
    assert_eq!(warnings(&sound("")), [""; 0]);
}

#[test]
fn each_fault_is_found_where_it_is() {
    for (rules, expected) in [
        (
            "  - principals: {}\n    brokerResources: [{method: Connect}]",
            "line 9: the principals are empty",
        ),
        ("  - principals: {usernames: [c]}", "line 9: the rule has no resources"),
        (
            "  - principals: {clientIds: [c]}\n    stateStoreResources: [{method: Read, keys: [x]}]",
            "line 9: the rule names client ids",
        ),
        (
            "  - principals: {usernames: [c]}\n    stateStoreResources: [{method: Read, keys: ['*']}]",
            "line 10: a pattern of keys matches everything",
        ),
        (
            "  - principals: {usernames: [c]}\n    brokerResources: [{method: Subscribe, topics: ['#']}]",
            "line 10: a topic filter matches everything",
        ),
        (
            "  - principals: {usernames: [c]}\n    stateStoreResources: [{method: Write, keys: [x]}]",
            "line 10: Write without Read",
        ),
        (
            "  - principals: {usernames: [c]}\n    stateStoreResources: [{method: Fence, keys: [x]}]",
            "line 10: Fence without Write",
        ),
        (
            "  - principals: {usernames: [b]}\n    stateStoreResources: [{method: Read, keys: ['own/{principal.username}/*']}]",
            "line 10: allows nothing that line 8 does not allow",
        ),
        (
            "  - principals: {usernames: [b, c]}\n    brokerResources: [{method: Connect, clientIds: [x]}, {method: Connect}]",
            "line 10: allows nothing that line 10 does not allow",
        ),
    ] {
        let found = warnings(&sound(rules));
        assert_eq!(found.len(), 1, "{rules}: {found:?}");
        assert!(found[0].starts_with(expected), "{rules}: {found:?}");
    }
}

#[test]
fn what_is_read_elsewhere_may_be_written() {
    let rules = "  - principals: {usernames: [c]}
    stateStoreResources:
      - {method: Fence, keys: [x]}
      - {method: Write, keys: [x]}
      - {method: Read, keys: [x, y]}";
    assert_eq!(warnings(&sound(rules)), [""; 0]);
}

/// Of two that are the same one is needed.
#[test]
fn one_of_a_pair_is_needless() {
    let rules = "  - principals: {usernames: [c]}
    stateStoreResources:
      - {method: Read, keys: [x]}
      - {method: Read, keys: [x]}";
    assert_eq!(warnings(&sound(rules)), ["line 12: allows nothing that line 11 does not allow"]);
}

#[test]
fn nobody_can_do_anything() {
    assert_eq!(warnings("rules: []"), ["line 1: there are no rules, so nobody may do anything"]);
    let keys =
        "rules: [{principals: {usernames: [a]}, stateStoreResources: [{method: Read, keys: [x]}]}]";
    let found = warnings(keys);
    assert!(
        found[0].contains("nobody may connect") && found[1].contains("nobody may ask"),
        "{found:?}"
    );
}

/// What is allowed twice, and what only seems so: two resources for the same principals, and whether the second is needless.
#[test]
fn what_is_needless_is_told_from_what_is_not() {
    let keys = |key_type: &str, keys: &str| {
        format!(
            "    stateStoreResources: [{{method: Read, keyType: {key_type}, keys: [{keys}]}}]\n"
        )
    };
    let topics = |method: &str, topics: &str| {
        format!("    brokerResources: [{{method: {method}, topics: [{topics}]}}]\n")
    };
    let connect =
        |ids: &str| format!("    brokerResources: [{{method: Connect, clientIds: [{ids}]}}]\n");
    for (first, second, is_needless) in [
        (keys("Pattern", "a, b"), keys("Pattern", "b"), true),
        (keys("Pattern", "a"), keys("Pattern", "a, b"), false),
        (keys("Pattern", "a"), keys("String", "a"), true),
        (keys("Pattern", "a?"), keys("String", "ab"), false),
        (keys("Pattern", "'a/*'"), keys("Pattern", "'a/b/*', 'a/[xy]'"), true),
        (keys("Pattern", "'a/?'"), keys("Pattern", "'a/*'"), false),
        (
            keys("Pattern", "'{principal.clientId}/*'"),
            keys("Pattern", "'{principal.username}/*'"),
            false,
        ),
        (keys("Pattern", "'x/*'"), keys("Pattern", "'{principal.clientId}/*'"), false),
        (keys("Pattern", "'a/*'"), keys("Pattern", "'a/{principal.clientId}'"), true),
        (keys("Pattern", "'*'"), keys("String", "a"), true),
        (keys("Pattern", "'*'"), keys("Binary", "YQ=="), false),
        (keys("String", "a, b"), keys("String", "a"), true),
        (keys("String", "a"), keys("String", "b"), false),
        (keys("Binary", "YQ==, YWI="), keys("Binary", "YQ=="), true),
        (keys("Binary", "YQ=="), keys("Binary", "YWI="), false),
        (keys("String", "a"), keys("Binary", "YQ=="), false),
        (topics("Publish", "a, b"), topics("Publish", "a"), true),
        (topics("Publish", "a"), topics("Publish", "b"), false),
        (topics("Subscribe", "a"), topics("Subscribe", "a"), true),
        (topics("Publish", "a"), topics("Subscribe", "a"), false),
        (connect("a, b"), connect("a"), true),
        (connect("a"), connect("b"), false),
        (connect("'*'"), connect("b"), true),
        (connect(""), connect("b"), true),
        (connect("b"), connect(""), false),
        (connect("a"), keys("String", "a"), false),
    ] {
        let rules: String = [&first, &second]
            .map(|resources| format!("  - principals: {{usernames: [c]}}\n{resources}"))
            .concat();
        let found = warnings(&sound(&rules));
        let needless = found.iter().any(|text| text.starts_with("line 12: allows nothing"));
        assert_eq!(needless, is_needless, "{rules}: {found:?}");
    }
}

#[test]
fn who_may_ask_and_not_listen_is_found() {
    let without = |filters: &str| {
        let filter =
            "'clients/{principal.clientId}/#', 'clients/statestore/+/+/+/command/notify/+'";
        warnings(&sound("").replace(filter, filters))
    };
    let [answers] = &without("elsewhere")[..] else { panic!("one warning") };
    assert!(answers.starts_with("line 1: ") && answers.contains("clients/{principal.clientId}/#"));
    let [notes] = &without("'clients/{principal.clientId}/#'")[..] else { panic!("one warning") };
    assert!(notes.contains("nobody may watch"), "{notes}");
    assert_eq!(without("'clients/#'"), [""; 0]);
}

#[test]
fn a_policy_says_which_names_it_goes_by() {
    let names = |principals: &str| {
        Policy::parse(&format!("rules: [{{principals: {principals}}}]")).unwrap().names()
    };
    let none = Names::default();
    assert_eq!(names("{}"), none);
    assert_eq!(names("{usernames: [a]}"), Names { user_names: true, ..none });
    assert_eq!(names("{clientIds: [a]}"), Names { client_ids: true, ..none });
    assert_eq!(names("{attributes: [{a: b}]}"), Names { attributes: true, ..none });
}

/// With many resources they are not compared, so that reading a document takes no time that anybody notices.
#[test]
fn many_resources_are_not_compared() {
    let many = |count: usize| {
        let resources = "{method: Write, keys: [x]}, ".repeat(count);
        let rules =
            format!("  - principals: {{usernames: [c]}}\n    stateStoreResources: [{resources}]");
        warnings(&sound(&rules)).len()
    };
    // Each tells what is there, and all but the first are needless; three resources stand before them.
    assert_eq!(many(10), 10 + 9);
    assert_eq!(many(1_000), 0);
}

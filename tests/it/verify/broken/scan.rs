use std::collections::BTreeSet;

use super::{Broken, differs, fails, is, on_reply, on_words, payload, replace_reply};

pub(super) fn pages() -> Vec<Broken> {
    vec![
        fails("a token is an offset", "scan/during-writes", {
            // The next page skips as many keys as were deleted since.
            let mut removed = 0;
            let mut skip = 0;
            Box::new(move |message| {
                if *message.topic == *statestore_proto::topic::REQUEST {
                    let words = super::words(&message.payload).unwrap_or_default();
                    removed += usize::from(is(&words, "DEL"));
                    skip = if is(&words, "SCAN") && words.len() == 3 { removed } else { 0 };
                    removed = if skip > 0 { 0 } else { removed };
                } else if skip > 0 && message.payload.starts_with(b"*") {
                    let text = String::from_utf8_lossy(&message.payload).into_owned();
                    let renamed = text.replacen("/during-writes/", "/DURING-WRITES/", skip);
                    message.payload = renamed.into();
                    skip = 0;
                }
            })
        }),
        fails(
            "an empty result is not a page",
            "scan/nothing",
            on_reply(|reply| payload(reply, "*1\r\n*0\r\n", "*0\r\n")),
        ),
        fails(
            "tokens restart the scan",
            "scan/pages",
            on_words(|words| {
                if is(words, "SCAN") {
                    words.truncate(2);
                }
            }),
        ),
        fails(
            "every page is the last",
            "scan/during-writes",
            on_reply(|reply| {
                if reply.payload.starts_with(b"*2\r\n*") {
                    let page: Vec<_> = reply.payload[4..].to_vec();
                    let token =
                        page.windows(3).rposition(|three| three == b"\r\n$").unwrap_or_default();
                    reply.payload = [b"*1\r\n", &page[..token + 2]].concat().into();
                }
            }),
        ),
        fails("a token is valid once", "scan/token-again", {
            let mut seen = BTreeSet::new();
            replace_reply(move |_, words| {
                let is_again =
                    words.len() == 3 && is(words, "SCAN") && !seen.insert(words[2].clone());
                is_again.then_some("-ERR syntax error\r\n")
            })
        }),
        differs(
            "an invalid token is ignored",
            "scan/bad-token",
            on_words(|words| {
                if is(words, "SCAN") {
                    words.truncate(2);
                }
            }),
        ),
    ]
}

pub(super) fn patterns() -> Vec<Broken> {
    vec![
        differs(
            "keys are not ordered",
            "scan/order",
            on_reply(|reply| {
                let swapped = String::from_utf8_lossy(&reply.payload).replace("/aa\r\n", "/zz\r\n");
                reply.payload = swapped.into();
            }),
        ),
        differs(
            "long patterns are truncated",
            "scan/long-pattern",
            on_words(|words| {
                if is(words, "SCAN") {
                    words[1].truncate(1_000);
                }
            }),
        ),
        differs(
            "no SCAN",
            "scan/keys",
            on_words(|words| {
                if is(words, "SCAN") {
                    words[0] = b"NO SUCH VERB".to_vec();
                }
            }),
        )
        .skipped(),
        fails(
            "the first key is missing",
            "scan/keys",
            on_reply(|reply| {
                if let Some(page) = reply.payload.strip_prefix(b"*1\r\n*2\r\n") {
                    let line = page.windows(2).position(|two| two == b"\r\n").unwrap_or_default();
                    let len: usize =
                        String::from_utf8_lossy(&page[1..line]).parse().unwrap_or_default();
                    reply.payload = [b"*1\r\n*1\r\n", &page[line + 2 + len + 2..]].concat().into();
                }
            }),
        ),
        fails(
            "a question mark is a star",
            "scan/patterns",
            on_words(|words| {
                if is(words, "SCAN") {
                    let starred =
                        words[1].iter().map(|byte| if *byte == b'?' { b'*' } else { *byte });
                    words[1] = starred.collect();
                }
            }),
        ),
        fails(
            "a caret negates",
            "scan/patterns",
            on_words(|words| {
                if is(words, "SCAN") {
                    words[1] = String::from_utf8_lossy(&words[1]).replace("[^", "[!").into();
                }
            }),
        ),
        fails(
            "SCAN without a pattern lists all keys",
            "scan/grammar",
            on_words(|words| {
                if is(words, "SCAN") && words.len() == 1 {
                    words.push(b"*".to_vec());
                }
            }),
        ),
        differs(
            "an invalid pattern matches nothing",
            "scan/no-pattern",
            on_reply(|reply| payload(reply, "-ERR syntax error\r\n", "*1\r\n*0\r\n")),
        ),
        differs(
            "bytes that are not UTF-8 are removed from patterns",
            "scan/not-utf8",
            on_words(|words| {
                if is(words, "SCAN") {
                    words[1].retain(|byte| *byte != 0xff);
                }
            }),
        ),
    ]
}

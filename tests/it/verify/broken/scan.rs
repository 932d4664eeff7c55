use std::collections::BTreeSet;

use super::{Broken, answered, answers_instead, differs, fails, is, payload, reworded};

pub(super) fn pages() -> Vec<Broken> {
    vec![
        fails("a token is a number of keys", "scan/meanwhile", {
            // The first page forgets its place by as many keys as were removed since.
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
                    let renamed = text.replacen("/meanwhile/", "/MEANWHILE/", skip);
                    message.payload = renamed.into();
                    skip = 0;
                }
            })
        }),
        fails(
            "no page where there is nothing",
            "scan/nothing",
            answered(|reply| payload(reply, "*1\r\n*0\r\n", "*0\r\n")),
        ),
        fails(
            "tokens lead to the beginning",
            "scan/pages",
            reworded(|words| {
                if is(words, "SCAN") {
                    words.truncate(2);
                }
            }),
        ),
        fails(
            "a page is the last",
            "scan/meanwhile",
            answered(|reply| {
                if reply.payload.starts_with(b"*2\r\n*") {
                    let page: Vec<_> = reply.payload[4..].to_vec();
                    let token =
                        page.windows(3).rposition(|three| three == b"\r\n$").unwrap_or_default();
                    reply.payload = [b"*1\r\n", &page[..token + 2]].concat().into();
                }
            }),
        ),
        fails("a token is good once", "scan/token-again", {
            let mut seen = BTreeSet::new();
            answers_instead(move |_, words| {
                let is_again =
                    words.len() == 3 && is(words, "SCAN") && !seen.insert(words[2].clone());
                is_again.then_some("-ERR syntax error\r\n")
            })
        }),
        differs(
            "what is no token is none",
            "scan/bad-token",
            reworded(|words| {
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
            "keys in no order",
            "scan/order",
            answered(|reply| {
                let swapped = String::from_utf8_lossy(&reply.payload).replace("/aa\r\n", "/zz\r\n");
                reply.payload = swapped.into();
            }),
        ),
        differs(
            "long patterns",
            "scan/long-pattern",
            reworded(|words| {
                if is(words, "SCAN") {
                    words[1].truncate(1_000);
                }
            }),
        ),
        differs(
            "no SCAN",
            "scan/keys",
            reworded(|words| {
                if is(words, "SCAN") {
                    words[0] = b"NO SUCH VERB".to_vec();
                }
            }),
        )
        .skipped(),
        fails(
            "the first key is forgotten",
            "scan/keys",
            answered(|reply| {
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
            reworded(|words| {
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
            reworded(|words| {
                if is(words, "SCAN") {
                    words[1] = String::from_utf8_lossy(&words[1]).replace("[^", "[!").into();
                }
            }),
        ),
        fails(
            "SCAN of nothing is of all",
            "scan/grammar",
            reworded(|words| {
                if is(words, "SCAN") && words.len() == 1 {
                    words.push(b"*".to_vec());
                }
            }),
        ),
        differs(
            "what is no pattern is text",
            "scan/no-pattern",
            answered(|reply| payload(reply, "-ERR syntax error\r\n", "*1\r\n*0\r\n")),
        ),
        fails(
            "what is no text is made text",
            "scan/no-text",
            reworded(|words| {
                words.iter_mut().for_each(|word| word.retain(|byte| *byte != 0xff));
            }),
        ),
    ]
}

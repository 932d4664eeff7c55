use std::collections::BTreeMap;

use super::pages::{Page, page};
use super::rows;
use crate::ask::{Ask, ask};
use crate::trial::{Done, OK, ONE, Reply, Stop, Trial};

/// Pages of one listing at most.
const PAGES_MAX: usize = 64;

/// The answer to a SCAN, if the store knows it.
async fn scanned(trial: &mut Trial, ask: &Ask) -> Result<Reply, Stop> {
    let reply = trial.ask(ask).await?;
    if reply.error() == Some("unknown command") {
        return Err(Stop::Skipped("this store does not know SCAN"));
    }
    Ok(reply)
}

/// One page.
async fn one(trial: &mut Trial, pattern: &[u8], token: Option<&[u8]>) -> Result<Page, Stop> {
    let ask = match token {
        Some(token) => ask!["SCAN", pattern, token],
        None => ask!["SCAN", pattern],
    };
    let reply = scanned(trial, &ask).await?;
    page(&reply.0.payload).ok_or_else(|| Stop::Missing("expected a page of keys".into()))
}

/// A whole listing.
async fn list(trial: &mut Trial, pattern: &[u8]) -> Result<Vec<Vec<u8>>, Stop> {
    let (mut keys, mut token) = (Vec::new(), None);
    for _ in 0..PAGES_MAX {
        let page = one(trial, pattern, token.as_deref()).await?;
        keys.extend(page.keys);
        token = page.token;
        if token.is_none() {
            return Ok(keys);
        }
    }
    Err(Stop::Missing(format!("a listing of few keys does not end within {PAGES_MAX} pages")))
}

/// The listing is these keys, in whatever order.
fn lists(trial: &mut Trial, mut listed: Vec<Vec<u8>>, mut expected: Vec<Vec<u8>>) {
    listed.sort();
    expected.sort();
    let show = |keys: &[Vec<u8>]| {
        let last = |key: &Vec<u8>| {
            let name = key.rsplit(|byte| *byte == b'/').next().unwrap_or(key);
            crate::ask::show(name)
        };
        keys.iter().take(20).map(last).collect::<Vec<_>>().join(" ")
    };
    let text = format!("expected the keys {}, got {}", show(&expected), show(&listed));
    trial.must(listed == expected, text);
}

pub(super) async fn keys(trial: &mut Trial) -> Done {
    let names = ["a1", "a2", "b1"].map(|name| trial.key(name));
    for key in &names {
        trial.set(key, "v").await?;
    }
    for (pattern, expected) in [("a*", &names[..2]), ("*", &names[..]), ("b1", &names[2..])] {
        let listed = list(trial, &trial.key(pattern)).await?;
        lists(trial, listed, expected.to_vec());
    }
    trial.expect(&ask!["DEL", names[0]], ONE).await?;
    let listed = list(trial, &trial.key("*")).await?;
    lists(trial, listed, names[1..].to_vec());
    // What has expired is not there.
    let (key, px) = (trial.key("a3"), trial.soon());
    trial.expect(&ask!["SET", key, "v", "PX", px.as_millis().to_string()], OK).await?;
    tokio::time::sleep(px * 2).await;
    let listed = list(trial, &trial.key("*")).await?;
    lists(trial, listed, names[1..].to_vec());
    // More than a few.
    let count = if trial.is_thorough { 100 } else { 10 };
    let many: Vec<_> = (0..count).map(|number| trial.key(format!("many/{number}"))).collect();
    for key in &many {
        trial.set(key, "v").await?;
    }
    let listed = list(trial, &trial.key("many/*")).await?;
    lists(trial, listed, many);
    Ok(())
}

pub(super) async fn nothing(trial: &mut Trial) -> Done {
    let listed = list(trial, &trial.key("*")).await?;
    lists(trial, listed, Vec::new());
    Ok(())
}

/// What deployed documentation and clients say of patterns.
const PATTERNS: [&str; 20] = [
    "a", "*", "a*c", "?", "??", "[!abc]", "[a-z]", "[^0-9]", "[]]", "[!]]", "[a-]", "[a-c-e]",
    "[z-a]", "[*]", "\\*", "{a,b}", "**", "**/a", "a/**/b", "a/**",
];

pub(super) async fn patterns(trial: &mut Trial) -> Done {
    // By pattern the keys that it matches, or does not.
    let mut wanted: BTreeMap<String, Vec<(Vec<u8>, bool)>> = BTreeMap::new();
    for row in rows("globs.txt")? {
        let (pattern, key) = (row.bytes("pattern")?, row.bytes("key")?);
        let matches = row.text("result")? == "match";
        let Ok(pattern) = String::from_utf8(pattern) else { continue };
        if PATTERNS.contains(&&*pattern) && !key.is_empty() && std::str::from_utf8(&key).is_ok() {
            wanted.entry(pattern).or_default().push((key, matches));
        }
    }
    let wanted = trial.sample(wanted.into_iter().collect());
    let mut names: Vec<&Vec<u8>> =
        wanted.iter().flat_map(|(_, keys)| keys).map(|(key, _)| key).collect();
    names.sort();
    names.dedup();
    for name in names {
        trial.set(&trial.key(name), "v").await?;
    }
    for (pattern, keys) in &wanted {
        let listed = list(trial, &trial.key(pattern)).await?;
        for (key, matches) in keys {
            let found = listed.contains(&trial.key(key));
            let (key, is) =
                (key.escape_ascii(), if *matches { "matches" } else { "does not match" });
            trial.must(found == *matches, format_args!("expected that {pattern} {is} {key}"));
        }
    }
    Ok(())
}

/// Keys that are long enough to fill more than one page of most stores.
fn long_keys(trial: &Trial) -> Vec<Vec<u8>> {
    (0..10).map(|number| trial.key(format!("{number}{}", "k".repeat(2_500)))).collect()
}

/// Sets them, and gives their pattern.
async fn filled(trial: &mut Trial) -> Result<(Vec<Vec<u8>>, Vec<u8>), Stop> {
    let keys = long_keys(trial);
    for key in &keys {
        trial.set(key, "v").await?;
    }
    Ok((keys, trial.key("*")))
}

pub(super) async fn pages(trial: &mut Trial) -> Done {
    let (keys, pattern) = filled(trial).await?;
    let first = one(trial, &pattern, None).await?;
    trial.may(first.token.is_some(), "expected that 25 kB of keys take more than one page");
    let listed = list(trial, &pattern).await?;
    lists(trial, listed, keys);
    Ok(())
}

pub(super) async fn token_again(trial: &mut Trial) -> Done {
    let (keys, pattern) = filled(trial).await?;
    let first = one(trial, &pattern, None).await?;
    let Some(token) = &first.token else {
        return Err(Stop::Skipped("25 kB of keys are one page"));
    };
    let second = one(trial, &pattern, Some(token)).await?;
    let again = one(trial, &pattern, Some(token)).await?;
    trial.must(again.keys == second.keys, "expected the same page for the same token");
    let mut listed = [first.keys, again.keys].concat();
    let mut token = again.token;
    for _ in 0..PAGES_MAX {
        let Some(next) = token else { break };
        let page = one(trial, &pattern, Some(&next)).await?;
        listed.extend(page.keys);
        token = page.token;
    }
    lists(trial, listed, keys);
    Ok(())
}

pub(super) async fn meanwhile(trial: &mut Trial) -> Done {
    let (mut keys, pattern) = filled(trial).await?;
    let first = one(trial, &pattern, None).await?;
    let (mut listed, mut token) = (first.keys, first.token);
    if token.is_none() && listed.len() >= keys.len() {
        return Err(Stop::Skipped("25 kB of keys are one page"));
    }
    // What was listed goes, and others come in its place, each at another time.
    let gone: Vec<_> = listed.iter().take(2).cloned().collect();
    for key in &gone {
        trial.expect(&ask!["DEL", key], ONE).await?;
    }
    for round in 0..PAGES_MAX {
        let Some(next) = token else { break };
        let page = one(trial, &pattern, Some(&next)).await?;
        listed.extend(page.keys);
        token = page.token;
        if round == 0 {
            for number in 0..3 {
                trial.set(&trial.key(format!("{number}")), "v").await?;
            }
        }
    }
    // The others are what the promise is about.
    keys.retain(|key| !gone.contains(key));
    listed.retain(|key| keys.contains(key));
    lists(trial, listed, keys);
    Ok(())
}

pub(super) async fn grammar(trial: &mut Trial) -> Done {
    let pattern = trial.key("*");
    scanned(trial, &ask!["SCAN", pattern]).await?;
    for row in rows("scans-refused.txt")? {
        let payload = row.bytes("payload")?;
        if payload.windows(4).any(|four| four == b"SCAN") && row.text("text")? != "unknown command"
        {
            trial.refused(&Ask::payload(payload), row.text("text")?).await?;
        }
    }
    Ok(())
}

pub(super) async fn no_text(trial: &mut Trial) -> Done {
    let (text, other) = (trial.key("k"), trial.key([b'k', 0xff]));
    trial.set(&text, "v").await?;
    trial.expect(&ask!["SET", other, "v"], OK).await?;
    let listed = list(trial, &trial.key("*")).await?;
    lists(trial, listed, vec![text]);
    // No error: such a pattern matches nothing.
    let listed = list(trial, &trial.key([0xff, b'*'])).await?;
    lists(trial, listed, Vec::new());
    Ok(())
}

pub(super) async fn no_pattern(trial: &mut Trial) -> Done {
    for pattern in ["[", "[a", "[]", "[!]", "[a-", "***", "a**", "**a", "a**b"] {
        let pattern = trial.key(pattern);
        let reply = scanned(trial, &ask!["SCAN", pattern]).await?;
        let error = reply.error() == Some("syntax error");
        trial.may(error, "expected -ERR syntax error");
    }
    Ok(())
}

pub(super) async fn order(trial: &mut Trial) -> Done {
    let keys = ["b", "a", "aa", "B", "\u{e9}", "a/b"].map(|name| trial.key(name));
    for key in &keys {
        trial.set(key, "v").await?;
    }
    let listed = list(trial, &trial.key("*")).await?;
    let mut expected = keys.to_vec();
    expected.sort();
    trial.may(listed == expected, "expected the keys in the order of their bytes");
    Ok(())
}

pub(super) async fn long_pattern(trial: &mut Trial) -> Done {
    let pattern = trial.key("k".repeat(40_000));
    let reply = scanned(trial, &ask!["SCAN", pattern]).await?;
    let error = reply.error() == Some("the quota has been exceeded");
    trial.may(error, "expected -ERR the quota has been exceeded");
    Ok(())
}

pub(super) async fn bad_token(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    trial.set(&key, "v").await?;
    let pattern = trial.key("*");
    for token in [&b"no token"[..], b"", &[0; 64]] {
        let reply = scanned(trial, &ask!["SCAN", pattern, token]).await?;
        let error = reply.error() == Some("syntax error");
        trial.may(error, "expected -ERR syntax error");
    }
    Ok(())
}

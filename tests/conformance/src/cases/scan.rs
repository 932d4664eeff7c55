use std::collections::BTreeMap;

use super::pages::{Page, page};
use super::rows;
use crate::request::{Request, request};
use crate::trial::{Done, OK, ONE, Reply, Stop, Trial};

/// Maximum number of pages of one listing.
const PAGES_MAX: usize = 64;

/// Sends a SCAN. Skips the case if the store does not know SCAN.
async fn scanned(trial: &mut Trial, request: &Request) -> Result<Reply, Stop> {
    let reply = trial.request(request).await?;
    if reply.error() == Some("unknown command") {
        return Err(Stop::Skipped("this store does not know SCAN"));
    }
    Ok(reply)
}

/// Requests one page.
async fn request_page(
    trial: &mut Trial,
    pattern: &[u8],
    token: Option<&[u8]>,
) -> Result<Page, Stop> {
    let request = match token {
        Some(token) => request!["SCAN", pattern, token],
        None => request!["SCAN", pattern],
    };
    let reply = scanned(trial, &request).await?;
    page(&reply.0.payload).ok_or_else(|| Stop::Missing("expected a page of keys".into()))
}

/// Requests all pages of a listing.
async fn list(trial: &mut Trial, pattern: &[u8]) -> Result<Vec<Vec<u8>>, Stop> {
    let (mut keys, mut token) = (Vec::new(), None);
    for _ in 0..PAGES_MAX {
        let page = request_page(trial, pattern, token.as_deref()).await?;
        keys.extend(page.keys);
        token = page.token;
        if token.is_none() {
            return Ok(keys);
        }
    }
    Err(Stop::Missing(format!("a listing of few keys does not end within {PAGES_MAX} pages")))
}

/// Checks the listed keys, ignoring their order.
fn expect_keys(trial: &mut Trial, mut listed: Vec<Vec<u8>>, mut expected: Vec<Vec<u8>>) {
    listed.sort();
    expected.sort();
    let show = |keys: &[Vec<u8>]| {
        let last = |key: &Vec<u8>| {
            let name = key.rsplit(|byte| *byte == b'/').next().unwrap_or(key);
            crate::request::show(name)
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
        expect_keys(trial, listed, expected.to_vec());
    }
    trial.expect(&request!["DEL", names[0]], ONE).await?;
    let listed = list(trial, &trial.key("*")).await?;
    expect_keys(trial, listed, names[1..].to_vec());
    // An expired key is not listed.
    let (key, px) = (trial.key("a3"), trial.soon());
    trial.expect(&request!["SET", key, "v", "PX", px.as_millis().to_string()], OK).await?;
    tokio::time::sleep(px * 2).await;
    let listed = list(trial, &trial.key("*")).await?;
    expect_keys(trial, listed, names[1..].to_vec());
    // More keys.
    let count = if trial.is_thorough { 100 } else { 10 };
    let many: Vec<_> = (0..count).map(|number| trial.key(format!("many/{number}"))).collect();
    for key in &many {
        trial.set(key, "v").await?;
    }
    let listed = list(trial, &trial.key("many/*")).await?;
    expect_keys(trial, listed, many);
    Ok(())
}

pub(super) async fn nothing(trial: &mut Trial) -> Done {
    let listed = list(trial, &trial.key("*")).await?;
    expect_keys(trial, listed, Vec::new());
    Ok(())
}

/// Patterns that deployed documentation and clients mention.
const PATTERNS: [&str; 20] = [
    "a", "*", "a*c", "?", "??", "[!abc]", "[a-z]", "[^0-9]", "[]]", "[!]]", "[a-]", "[a-c-e]",
    "[z-a]", "[*]", "\\*", "{a,b}", "**", "**/a", "a/**/b", "a/**",
];

pub(super) async fn patterns(trial: &mut Trial) -> Done {
    // For each pattern: keys, with the expected result.
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

/// Keys that do not fit into one page of most stores.
fn long_keys(trial: &Trial) -> Vec<Vec<u8>> {
    (0..10).map(|number| trial.key(format!("{number}{}", "k".repeat(2_500)))).collect()
}

/// Sets the long keys, and returns them with their pattern.
async fn filled(trial: &mut Trial) -> Result<(Vec<Vec<u8>>, Vec<u8>), Stop> {
    let keys = long_keys(trial);
    for key in &keys {
        trial.set(key, "v").await?;
    }
    Ok((keys, trial.key("*")))
}

pub(super) async fn pages(trial: &mut Trial) -> Done {
    let (keys, pattern) = filled(trial).await?;
    let first = request_page(trial, &pattern, None).await?;
    trial.should(first.token.is_some(), "expected that 25 kB of keys take more than one page");
    let listed = list(trial, &pattern).await?;
    expect_keys(trial, listed, keys);
    Ok(())
}

pub(super) async fn token_again(trial: &mut Trial) -> Done {
    let (keys, pattern) = filled(trial).await?;
    let first = request_page(trial, &pattern, None).await?;
    let Some(token) = &first.token else {
        return Err(Stop::Skipped("25 kB of keys are one page"));
    };
    let second = request_page(trial, &pattern, Some(token)).await?;
    let again = request_page(trial, &pattern, Some(token)).await?;
    trial.must(again.keys == second.keys, "expected the same page for the same token");
    let mut listed = [first.keys, again.keys].concat();
    let mut token = again.token;
    for _ in 0..PAGES_MAX {
        let Some(next) = token else { break };
        let page = request_page(trial, &pattern, Some(&next)).await?;
        listed.extend(page.keys);
        token = page.token;
    }
    expect_keys(trial, listed, keys);
    Ok(())
}

pub(super) async fn during_writes(trial: &mut Trial) -> Done {
    let (mut keys, pattern) = filled(trial).await?;
    let first = request_page(trial, &pattern, None).await?;
    let (mut listed, mut token) = (first.keys, first.token);
    if token.is_none() && listed.len() >= keys.len() {
        return Err(Stop::Skipped("25 kB of keys are one page"));
    }
    // Removes some listed keys, and later sets others in their place.
    let gone: Vec<_> = listed.iter().take(2).cloned().collect();
    for key in &gone {
        trial.expect(&request!["DEL", key], ONE).await?;
    }
    for round in 0..PAGES_MAX {
        let Some(next) = token else { break };
        let page = request_page(trial, &pattern, Some(&next)).await?;
        listed.extend(page.keys);
        token = page.token;
        if round == 0 {
            for number in 0..3 {
                trial.set(&trial.key(format!("{number}")), "v").await?;
            }
        }
    }
    // The rule only covers keys that existed all the time.
    keys.retain(|key| !gone.contains(key));
    listed.retain(|key| keys.contains(key));
    expect_keys(trial, listed, keys);
    Ok(())
}

pub(super) async fn grammar(trial: &mut Trial) -> Done {
    let pattern = trial.key("*");
    scanned(trial, &request!["SCAN", pattern]).await?;
    for row in rows("scans-refused.txt")? {
        let payload = row.bytes("payload")?;
        if payload.windows(4).any(|four| four == b"SCAN") && row.text("text")? != "unknown command"
        {
            trial.expect_refusal(&Request::payload(payload), row.text("text")?).await?;
        }
    }
    Ok(())
}

pub(super) async fn not_utf8(trial: &mut Trial) -> Done {
    let (text, other) = (trial.key("k"), trial.key([b'k', 0xff]));
    trial.set(&text, "v").await?;
    trial.expect(&request!["SET", other, "v"], OK).await?;
    for (pattern, expected) in [
        (&b"*"[..], &[&text, &other][..]),
        (b"k?", &[&other]),
        (b"k\xff", &[&other]),
        (b"\xff*", &[]),
    ] {
        let listed = list(trial, &trial.key(pattern)).await?;
        let is_expected = listed.iter().eq(expected.iter().copied());
        trial.should(is_expected, format_args!("for the pattern {}", pattern.escape_ascii()));
    }
    Ok(())
}

pub(super) async fn no_pattern(trial: &mut Trial) -> Done {
    for pattern in ["[", "[a", "[]", "[!]", "[a-", "***", "a**", "**a", "a**b"] {
        let pattern = trial.key(pattern);
        let reply = scanned(trial, &request!["SCAN", pattern]).await?;
        let error = reply.error() == Some("syntax error");
        trial.should(error, "expected -ERR syntax error");
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
    trial.should(listed == expected, "expected the keys in the order of their bytes");
    Ok(())
}

pub(super) async fn long_pattern(trial: &mut Trial) -> Done {
    let pattern = trial.key("k".repeat(40_000));
    let reply = scanned(trial, &request!["SCAN", pattern]).await?;
    let error = reply.error() == Some("the quota has been exceeded");
    trial.should(error, "expected -ERR the quota has been exceeded");
    Ok(())
}

pub(super) async fn bad_token(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    trial.set(&key, "v").await?;
    let pattern = trial.key("*");
    for token in [&b"no token"[..], b"", &[0; 64]] {
        let reply = scanned(trial, &request!["SCAN", pattern, token]).await?;
        let error = reply.error() == Some("syntax error");
        trial.should(error, "expected -ERR syntax error");
    }
    Ok(())
}

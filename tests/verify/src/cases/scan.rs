use std::collections::BTreeMap;

use super::rows;
use crate::ask::{Ask, ask};
use crate::trial::{Done, OK, ONE, Reply, Stop, Trial};

/// Pages of one listing at most.
const PAGES_MAX: usize = 64;

/// Keys of a page, and the token that asks for the next one.
struct Page {
    keys: Vec<Vec<u8>>,
    token: Option<Vec<u8>>,
}

/// Reads a page; `None` when it is not as deployed clients read it.
fn page(payload: &[u8]) -> Option<Page> {
    let mut rest = payload;
    let outer = header(&mut rest, b'*')?;
    let count = header(&mut rest, b'*')?;
    let mut keys = Vec::new();
    for _ in 0..count {
        keys.push(blob(&mut rest)?);
    }
    let token = match outer {
        1 => None,
        2 => Some(blob(&mut rest)?),
        _ => return None,
    };
    rest.is_empty().then_some(Page { keys, token })
}

fn header(rest: &mut &[u8], kind: u8) -> Option<usize> {
    let end = rest.windows(2).position(|two| two == b"\r\n")?;
    let (line, tail) = (rest.get(..end)?, rest.get(end + 2..)?);
    let (first, digits) = line.split_first()?;
    *rest = tail;
    (*first == kind && digits.iter().all(u8::is_ascii_digit))
        .then(|| std::str::from_utf8(digits).ok()?.parse().ok())?
}

fn blob(rest: &mut &[u8]) -> Option<Vec<u8>> {
    let len = header(rest, b'$')?;
    let (text, tail) = (rest.get(..len)?, rest.get(len..)?);
    *rest = tail.strip_prefix(b"\r\n")?;
    Some(text.to_vec())
}

/// The answer to a SCAN, if the store knows it.
async fn scanned(trial: &mut Trial, ask: &Ask) -> Result<Reply, Stop> {
    let reply = trial.ask(ask).await?;
    if reply.error() == Some("unknown command") {
        return Err(Stop::Skipped("this store is older than SCAN"));
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
    // Some go, some come, before and behind wherever it is.
    let gone: Vec<_> = [1, 5, 8].into_iter().map(|at| keys[at].clone()).collect();
    for key in &gone {
        trial.expect(&ask!["DEL", key], ONE).await?;
    }
    for number in [0, 4, 9] {
        trial.set(&trial.key(format!("{number}j")), "v").await?;
    }
    for _ in 0..PAGES_MAX {
        let Some(next) = token else { break };
        let page = one(trial, &pattern, Some(&next)).await?;
        listed.extend(page.keys);
        token = page.token;
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

#[cfg(test)]
mod tests {
    use super::page;
    use crate::vectors::Vectors;

    #[test]
    fn pages_are_read_as_the_vectors_say() {
        let read = |file: &str| Vectors::read(file).expect("a file");
        read("pages.txt").run(5, |row| {
            let page = page(&row.bytes("payload")?).ok_or("not read")?;
            let keys = row.optional_bytes("keys")?.unwrap_or_default();
            let keys: Vec<&[u8]> =
                keys.split(|byte| *byte == b' ').filter(|key| !key.is_empty()).collect();
            let token = row.optional_bytes("token")?;
            (page.keys == keys && page.token == token).then_some(()).ok_or_else(|| "differs".into())
        });
        read("pages-refused.txt").run(5, |row| match page(&row.bytes("payload")?) {
            Some(_) => Err("read".into()),
            None => Ok(()),
        });
    }
}

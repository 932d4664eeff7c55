use super::rows;
use crate::request::{Request, header, request};
use crate::trial::{ABSENT, Done, OK, Trial, ZERO};
use crate::vectors;

/// Sends the rows of `requests.txt` that `is_wanted` selects, each with its own absent key.
async fn accepted_rows(
    trial: &mut Trial,
    is_rule: bool,
    is_wanted: impl Fn(&str, &str) -> bool,
) -> Done {
    let mut wanted = Vec::new();
    for row in rows("requests.txt")? {
        if is_wanted(row.text("form")?, row.text("condition")?) {
            wanted.push(row);
        }
    }
    for row in trial.sample(wanted) {
        let expected = match row.text("verb")? {
            "SET" | "KEYNOTIFY" => OK,
            "GET" => ABSENT,
            _ => ZERO,
        };
        let request = with_key_of(trial, &row)?;
        // Few clients send a PX that does not fit into 31 bits.
        if is_rule && row.optional("px")?.is_none_or(|px| px.len() < 10) {
            trial.expect(&request, expected).await?;
        } else {
            trial.expect_by_choice(&request, expected).await?;
        }
    }
    Ok(())
}

/// The request of a row, with its key moved below the prefix of the case.
fn with_key_of(trial: &Trial, row: &vectors::Case) -> Result<Request, String> {
    let payload = row.bytes("payload")?;
    let prefix = trial.key(format!("{}/", row.text("name")?));
    Ok(match with_prefix(&payload, &prefix) {
        Some((payload, key)) => Request::payload(payload).writes(key),
        None => Request::payload(payload),
    })
}

/// Prepends a prefix to the key, which is the second element of a request, and returns the request
/// and the new key. Returns `None` if the key is missing or empty. All other bytes stay, also
/// leading zeros.
fn with_prefix(payload: &[u8], prefix: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let (_, _, elements) = header(payload, b'*')?;
    let (_, len, verb) = header(elements, b'$')?;
    let second = verb.get(len..)?.strip_prefix(b"\r\n")?;
    let (digits, len, text) = header(second, b'$')?;
    let (key, rest) = text.split_at_checked(len).filter(|(key, _)| !key.is_empty())?;
    let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
    let before = payload.get(..payload.len() - second.len())?;
    let key = [prefix, key].concat();
    let line = format!("${}{}\r\n", "0".repeat(zeros), key.len());
    Some(([before, line.as_bytes(), &key, rest].concat(), key))
}

pub(super) async fn requests(trial: &mut Trial) -> Done {
    accepted_rows(trial, true, |form, condition| form == "canonical" && condition != "equal-to")
        .await
}

pub(super) async fn tolerated(trial: &mut Trial) -> Done {
    accepted_rows(trial, false, |form, condition| form == "tolerated" && condition != "equal-to")
        .await
}

pub(super) async fn any_case(trial: &mut Trial) -> Done {
    accepted_rows(trial, false, |form, _| form == "any-case").await
}

pub(super) async fn nex_argument(trial: &mut Trial) -> Done {
    accepted_rows(trial, false, |form, condition| form != "any-case" && condition == "equal-to")
        .await?;
    let key = trial.key("compared");
    trial.set(&key, "v").await?;
    trial.expect_by_choice(&request!["SET", key, "w", "NEX", "v"], OK).await?;
    let refused = crate::Dialect::Deployed.not_applied();
    trial.expect_by_choice(&request!["SET", key, "x", "NEX", "x"], refused).await?;
    Ok(())
}

/// Sends the rows of `requests-refused.txt` that `is_wanted` selects.
async fn refused_rows(
    trial: &mut Trial,
    is_rule: bool,
    is_wanted: impl Fn(&str, &str) -> bool,
) -> Done {
    let mut wanted = Vec::new();
    for row in rows("requests-refused.txt")? {
        // Some stores accept an empty key; the test must not write to it.
        let is_of_empty_key = row
            .bytes("payload")?
            .windows(13)
            .any(|part| part == b"$3\r\nSET\r\n$0\r\n" || part == b"$3\r\nDEL\r\n$0\r\n");
        let is_wanted = is_wanted(row.text("name")?, row.text("text")?);
        if row.text("case")? == "any" && is_wanted && !is_of_empty_key {
            wanted.push(row);
        }
    }
    for row in trial.sample(wanted) {
        let text = row.text("text")?;
        let request = with_key_of(trial, &row)?;
        if is_rule {
            trial.expect_refusal(&request, text).await?;
        } else {
            trial.expect_refusal_by_choice(&request, text).await?;
        }
    }
    Ok(())
}

fn starts_with_any(name: &str, starts: &[&str]) -> bool {
    starts.iter().any(|start| name.starts_with(start))
}

/// Returns whether a row has an invalid option. Invalid numbers are not included.
fn has_invalid_option(name: &str) -> bool {
    starts_with_any(
        name,
        &["option-", "nx-", "nex-", "keynotify-", "px-twice", "px-without", "px-nx"],
    )
}

pub(super) async fn resp3(trial: &mut Trial) -> Done {
    refused_rows(trial, true, |name, text| {
        text == "syntax error"
            && !has_invalid_option(name)
            && !starts_with_any(name, &["px-", "order-"])
    })
    .await
}

pub(super) async fn options(trial: &mut Trial) -> Done {
    refused_rows(trial, true, |name, text| text == "syntax error" && has_invalid_option(name)).await
}

pub(super) async fn expiry_numbers(trial: &mut Trial) -> Done {
    refused_rows(trial, false, |name, _| name.starts_with("px-") && !has_invalid_option(name)).await
}

pub(super) async fn verbs(trial: &mut Trial) -> Done {
    refused_rows(trial, true, |name, text| text == "unknown command" && !name.starts_with("order-"))
        .await
}

pub(super) async fn arity(trial: &mut Trial) -> Done {
    refused_rows(trial, true, |name, text| {
        text == "wrong number of arguments" && !name.starts_with("order-")
    })
    .await
}

/// A store that accepts an empty key loses no value here: no request replaces or removes one.
pub(super) async fn empty_key(trial: &mut Trial) -> Done {
    let text = "the key length is zero";
    let value = trial.key("no such value");
    trial.expect_refusal(&request!["GET", ""], text).await?;
    trial.expect_refusal(&request!["VDEL", "", value], text).await?;
    trial.expect_refusal(&request!["KEYNOTIFY", ""], text).await?;
    let got = trial.expect_refusal(&request!["SET", "", value, "NX"], text).await?;
    if got.0.payload == OK {
        trial.request(&request!["VDEL", "", value]).await?;
    }
    Ok(())
}

pub(super) async fn order(trial: &mut Trial) -> Done {
    refused_rows(trial, false, |name, _| name.starts_with("order-")).await
}

pub(super) async fn cut(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    let whole = request!["SET", key, "v"].payload;
    // Cuts in each kind of field: length, text, line end, and each element.
    for at in [1, 3, 5, 9, 12, whole.len() - 8, whole.len() - 3, whole.len() - 1] {
        let request = Request::payload(whole[..at].to_vec()).writes(key.clone());
        trial.expect_refusal(&request, "syntax error").await?;
    }
    for byte in [0, b'\n', b'*'] {
        let request = Request::payload([&whole[..], &[byte]].concat()).writes(key.clone());
        trial.expect_refusal(&request, "syntax error").await?;
    }
    trial.expect_value(&key, None).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::with_prefix;

    #[test]
    fn with_prefix_changes_only_the_key() {
        let moved = |payload: &[u8]| with_prefix(payload, b"p/").map(|(moved, _)| moved);
        assert_eq!(
            moved(b"*2\r\n$003\r\nGET\r\n$001\r\nk\r\n").as_deref(),
            Some(&b"*2\r\n$003\r\nGET\r\n$003\r\np/k\r\n"[..]),
        );
        assert_eq!(
            moved(b"*3\r\n$3\r\nSET\r\n$2\r\n\r\n\r\n$0\r\n\r\n").as_deref(),
            Some(&b"*3\r\n$3\r\nSET\r\n$4\r\np/\r\n\r\n$0\r\n\r\n"[..]),
        );
        for untouched in [
            &b"GET k"[..],
            b"",
            b"*2\r\n$3\r\nGET\r\n$0\r\n\r\n",
            b"*2\r\n$3\r\nGET\r\n$9\r\nk\r\n",
            b"*\r\n$",
            b"*1\r\n$99999999999999999999\r\n",
        ] {
            assert_eq!(moved(untouched), None, "{}", untouched.escape_ascii());
        }
    }
}

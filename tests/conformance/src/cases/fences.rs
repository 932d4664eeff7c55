use tokio::time::Instant;

use crate::request::{By, Request, request};
use crate::trial::{Done, OK, ONE, Trial, ZERO};
use crate::version::Stamp;

pub(super) const REQUIRED: &str = "a fencing token is required for this request";
pub(super) const LOWER: &str =
    "the request fencing token is a lower version than the fencing token protecting the resource";
const AHEAD: &str = "the request fencing token timestamp is too far in the future; \
    ensure that the client and broker system clocks are synchronized";

/// The writes to which fencing applies.
fn writes(key: &[u8]) -> [Request; 3] {
    [request!["SET", key, "w"], request!["DEL", key], request!["VDEL", key, "v"]]
}

/// Sets a key to `v` with a token.
async fn fenced(trial: &mut Trial, key: &[u8], token: &str) -> Done {
    trial.expect(&request!["SET", key, "v"].token(token), OK).await.map(drop)
}

pub(super) async fn unfenced(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    for token in [None, Some("1:0:verify")] {
        for (request, payload) in writes(&key).into_iter().zip([OK, ONE, ONE]).rev() {
            trial.set(&key, "v").await?;
            trial.expect(&request.maybe_token(token), payload).await?;
        }
    }
    Ok(())
}

pub(super) async fn required(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    fenced(trial, &key, "10:0:verify").await?;
    for request in writes(&key) {
        trial.expect_refusal(&request, REQUIRED).await?;
        trial.expect_refusal(&request.by(By::B), REQUIRED).await?;
    }
    trial.expect_value(&key, Some("v")).await?;
    // A token from any kind of SET fences the key, also when the key existed before.
    for condition in ["NX", "NEX"] {
        let key = trial.key(condition);
        trial.expect(&request!["SET", key, "v", condition].token("10:0:verify"), OK).await?;
        trial.expect_refusal(&request!["DEL", key], REQUIRED).await?;
    }
    let key = trial.key("later");
    trial.set(&key, "v").await?;
    fenced(trial, &key, "10:0:verify").await?;
    trial.expect_refusal(&request!["DEL", key], REQUIRED).await?;
    Ok(())
}

pub(super) async fn lower(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    fenced(trial, &key, "10:5:verify").await?;
    for token in ["9:9:verify", "10:4:verify", "10:5:verifx", "0:0:zzzzzzz"] {
        trial.expect_refusal(&request!["SET", key, "w"].token(token), LOWER).await?;
    }
    for request in writes(&key) {
        trial.expect_refusal(&request.token("10:4:verify"), LOWER).await?;
    }
    trial.expect_refusal(&request!["SET", key, "v", "NEX"].token("10:4:verify"), LOWER).await?;
    trial.expect_value(&key, Some("v")).await?;
    Ok(())
}

pub(super) async fn equal(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    let token = "10:5:verify";
    for (request, payload) in writes(&key).into_iter().zip([OK, ONE, ONE]) {
        fenced(trial, &key, token).await?;
        trial.expect(&request.token(token), payload).await?;
    }
    Ok(())
}

pub(super) async fn higher(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    for (request, payload) in writes(&key).into_iter().zip([OK, ONE, ONE]) {
        fenced(trial, &key, "10:0:verify").await?;
        let is_set = payload == OK;
        trial.expect(&request.token("11:0:verify"), payload).await?;
        if is_set {
            trial.expect_refusal(&request!["DEL", key].token("10:0:verify"), LOWER).await?;
            trial.expect(&request!["DEL", key].token("11:0:verify"), ONE).await?;
        }
    }
    Ok(())
}

pub(super) async fn numbers(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    fenced(trial, &key, "9:9:verify").await?;
    for token in ["9:10:verify", "10:0:verify", "000000000000010:00000:verify", "100:0:verify"] {
        trial.expect(&request!["SET", key, "v"].token(token), OK).await?;
    }
    trial.expect_refusal(&request!["SET", key, "v"].token("99:0:verify"), LOWER).await?;
    Ok(())
}

pub(super) async fn versions(trial: &mut Trial) -> Done {
    let (lock, key) = (trial.key("lock"), trial.key("k"));
    let old = trial.set(&lock, "a").await?;
    let new = trial.set(&lock, "a").await?;
    trial.expect(&request!["SET", key, "v"].token(&new), OK).await?;
    trial.expect_refusal(&request!["SET", key, "w"].token(&old), LOWER).await?;
    let padded =
        Stamp::parse(&new).map(|new| format!("{:015}:{:05}:{}", new.wall, new.counter, new.node));
    trial.expect(&request!["SET", key, "w"].token(padded.unwrap_or_default()), OK).await?;
    Ok(())
}

pub(super) async fn gone_with_key(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    for removal in [request!["DEL", key], request!["VDEL", key, "v"]] {
        fenced(trial, &key, "10:0:verify").await?;
        trial.expect(&removal.token("10:0:verify"), ONE).await?;
        trial.set(&key, "w").await?;
        trial.expect(&request!["DEL", key], ONE).await?;
    }
    Ok(())
}

pub(super) async fn gone_with_expiry(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    let (px, since) = (trial.soon(), Instant::now());
    let set = request!["SET", key, "v", "PX", px.as_millis().to_string()].token("10:0:verify");
    trial.expect(&set, OK).await?;
    let got = trial.request(&request!["DEL", key]).await?;
    let is_refused = got.error() == Some(REQUIRED);
    trial.must(is_refused || since.elapsed() >= px, format_args!("expected -ERR {REQUIRED}"));
    tokio::time::sleep(px * 2).await;
    trial.set(&key, "w").await?;
    Ok(())
}

pub(super) async fn not_stored(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    trial.set(&key, "v").await?;
    trial.not_applied(&request!["SET", key, "w", "NX"].token("10:0:verify")).await?;
    let got = trial.request(&request!["SET", key, "w"]).await?;
    trial.should(got.0.payload == OK, "expected +OK, since the token was not stored");
    Ok(())
}

pub(super) async fn ahead(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    trial.set(&key, "v").await?;
    for ms in [75_000, 3_600_000] {
        for request in writes(&key) {
            let token = trial.stamp(ms);
            trial.expect_refusal(&request.token(token), AHEAD).await?;
        }
    }
    // A token may be slightly ahead of the clock.
    let token = trial.stamp(2_000);
    trial.expect(&request!["SET", key, "v"].token(token), OK).await?;
    Ok(())
}

pub(super) async fn malformed(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    trial.set(&key, "v").await?;
    // The case `clock/malformed` sends all of them as `__ts`.
    for text in super::malformed_clocks()?.into_iter().step_by(9) {
        for request in writes(&key) {
            trial.expect_refusal(&request.token(&text), "malformed timestamp").await?;
        }
    }
    trial.expect_value(&key, Some("v")).await?;
    Ok(())
}

pub(super) async fn writes_only(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    fenced(trial, &key, "10:0:verify").await?;
    for request in
        [request!["GET", key], request!["KEYNOTIFY", key], request!["KEYNOTIFY", key, "STOP"]]
    {
        let expected =
            if request.payload.starts_with(b"*2\r\n$3") { &b"$1\r\nv\r\n"[..] } else { OK };
        for token in [None, Some("9:0:verify"), Some("x")] {
            let got = trial.request(&request.clone().maybe_token(token)).await?;
            let is_done = got.0.payload == expected || got.0.payload == ZERO;
            trial.should(is_done, "expected that the token does not matter");
        }
    }
    Ok(())
}

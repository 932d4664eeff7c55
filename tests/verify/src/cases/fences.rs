use tokio::time::Instant;

use crate::ask::{Ask, By, ask};
use crate::trial::{Done, OK, ONE, Trial, ZERO};
use crate::version::Stamp;

pub(super) const REQUIRED: &str = "a fencing token is required for this request";
pub(super) const LOWER: &str =
    "the request fencing token is a lower version than the fencing token protecting the resource";
const AHEAD: &str = "the request fencing token timestamp is too far in the future; ensure that the client and broker system clocks are synchronized";

/// The writes that are fenced.
fn writes(key: &[u8]) -> [Ask; 3] {
    [ask!["SET", key, "w"], ask!["DEL", key], ask!["VDEL", key, "v"]]
}

/// Sets a key to `v` with a token.
async fn fenced(trial: &mut Trial, key: &[u8], token: &str) -> Done {
    trial.expect(&ask!["SET", key, "v"].token(token), OK).await.map(drop)
}

pub(super) async fn unfenced(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    for token in [None, Some("1:0:verify")] {
        for (ask, payload) in writes(&key).into_iter().zip([OK, ONE, ONE]).rev() {
            trial.set(&key, "v").await?;
            trial.expect(&ask.maybe_token(token), payload).await?;
        }
    }
    Ok(())
}

pub(super) async fn required(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    fenced(trial, &key, "10:0:verify").await?;
    for ask in writes(&key) {
        trial.refused(&ask, REQUIRED).await?;
        trial.refused(&ask.by(By::B), REQUIRED).await?;
    }
    trial.has(&key, Some("v")).await?;
    // Whichever SET brought the token, and when.
    for condition in ["NX", "NEX"] {
        let key = trial.key(condition);
        trial.expect(&ask!["SET", key, "v", condition].token("10:0:verify"), OK).await?;
        trial.refused(&ask!["DEL", key], REQUIRED).await?;
    }
    let key = trial.key("later");
    trial.set(&key, "v").await?;
    fenced(trial, &key, "10:0:verify").await?;
    trial.refused(&ask!["DEL", key], REQUIRED).await?;
    Ok(())
}

pub(super) async fn lower(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    fenced(trial, &key, "10:5:verify").await?;
    for token in ["9:9:verify", "10:4:verify", "10:5:verifx", "0:0:zzzzzzz"] {
        trial.refused(&ask!["SET", key, "w"].token(token), LOWER).await?;
    }
    for ask in writes(&key) {
        trial.refused(&ask.token("10:4:verify"), LOWER).await?;
    }
    trial.refused(&ask!["SET", key, "v", "NEX"].token("10:4:verify"), LOWER).await?;
    trial.has(&key, Some("v")).await?;
    Ok(())
}

pub(super) async fn equal(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    let token = "10:5:verify";
    for (ask, payload) in writes(&key).into_iter().zip([OK, ONE, ONE]) {
        fenced(trial, &key, token).await?;
        trial.expect(&ask.token(token), payload).await?;
    }
    Ok(())
}

pub(super) async fn higher(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    for (ask, payload) in writes(&key).into_iter().zip([OK, ONE, ONE]) {
        fenced(trial, &key, "10:0:verify").await?;
        let is_set = payload == OK;
        trial.expect(&ask.token("11:0:verify"), payload).await?;
        if is_set {
            trial.refused(&ask!["DEL", key].token("10:0:verify"), LOWER).await?;
            trial.expect(&ask!["DEL", key].token("11:0:verify"), ONE).await?;
        }
    }
    Ok(())
}

pub(super) async fn numbers(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    fenced(trial, &key, "9:9:verify").await?;
    for token in ["9:10:verify", "10:0:verify", "000000000000010:00000:verify", "100:0:verify"] {
        trial.expect(&ask!["SET", key, "v"].token(token), OK).await?;
    }
    trial.refused(&ask!["SET", key, "v"].token("99:0:verify"), LOWER).await?;
    Ok(())
}

pub(super) async fn versions(trial: &mut Trial) -> Done {
    let (lock, key) = (trial.key("lock"), trial.key("k"));
    let old = trial.set(&lock, "a").await?;
    let new = trial.set(&lock, "a").await?;
    trial.expect(&ask!["SET", key, "v"].token(&new), OK).await?;
    trial.refused(&ask!["SET", key, "w"].token(&old), LOWER).await?;
    let padded =
        Stamp::parse(&new).map(|new| format!("{:015}:{:05}:{}", new.wall, new.counter, new.node));
    trial.expect(&ask!["SET", key, "w"].token(padded.unwrap_or_default()), OK).await?;
    Ok(())
}

pub(super) async fn gone_with_key(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    for removal in [ask!["DEL", key], ask!["VDEL", key, "v"]] {
        fenced(trial, &key, "10:0:verify").await?;
        trial.expect(&removal.token("10:0:verify"), ONE).await?;
        trial.set(&key, "w").await?;
        trial.expect(&ask!["DEL", key], ONE).await?;
    }
    Ok(())
}

pub(super) async fn gone_with_expiry(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    let (px, since) = (trial.soon(), Instant::now());
    let set = ask!["SET", key, "v", "PX", px.as_millis().to_string()].token("10:0:verify");
    trial.expect(&set, OK).await?;
    let told = trial.ask(&ask!["DEL", key]).await?;
    let is_refused = told.error() == Some(REQUIRED);
    trial.must(is_refused || since.elapsed() >= px, format_args!("expected -ERR {REQUIRED}"));
    tokio::time::sleep(px * 2).await;
    trial.set(&key, "w").await?;
    Ok(())
}

pub(super) async fn not_stored(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    trial.set(&key, "v").await?;
    trial.not_applied(&ask!["SET", key, "w", "NX"].token("10:0:verify")).await?;
    let told = trial.ask(&ask!["SET", key, "w"]).await?;
    trial.may(told.0.payload == OK, "expected +OK, since the token was not stored");
    Ok(())
}

pub(super) async fn ahead(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    trial.set(&key, "v").await?;
    for ms in [75_000, 3_600_000] {
        for ask in writes(&key) {
            let token = trial.stamp(ms);
            trial.refused(&ask.token(token), AHEAD).await?;
        }
    }
    // What is a little ahead is a token as any other.
    let token = trial.stamp(2_000);
    trial.expect(&ask!["SET", key, "v"].token(token), OK).await?;
    Ok(())
}

pub(super) async fn malformed(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    trial.set(&key, "v").await?;
    // All of them were tried as `__ts`.
    for text in super::clockless()?.into_iter().step_by(9) {
        for ask in writes(&key) {
            trial.refused(&ask.token(&text), "malformed timestamp").await?;
        }
    }
    trial.has(&key, Some("v")).await?;
    Ok(())
}

pub(super) async fn of_writes_alone(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    fenced(trial, &key, "10:0:verify").await?;
    for ask in [ask!["GET", key], ask!["KEYNOTIFY", key], ask!["KEYNOTIFY", key, "STOP"]] {
        let expected = if ask.payload.starts_with(b"*2\r\n$3") { &b"$1\r\nv\r\n"[..] } else { OK };
        for token in [None, Some("9:0:verify"), Some("x")] {
            let told = trial.ask(&ask.clone().maybe_token(token)).await?;
            let is_done = told.0.payload == expected || told.0.payload == ZERO;
            trial.may(is_done, "expected that the token does not matter");
        }
    }
    Ok(())
}

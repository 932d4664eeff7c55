use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::ask::{Ask, ask};
use crate::trial::{Done, OK, Stop, Trial, ZERO};

/// A value that is set for a while, from when on, and for how long.
struct Passing {
    since: Instant,
    px: Duration,
}

impl Passing {
    /// Sets it.
    async fn set(trial: &mut Trial, key: &[u8]) -> Result<Self, Stop> {
        Self::set_with(trial, key, None).await
    }

    /// Sets it with a condition.
    async fn set_with(
        trial: &mut Trial,
        key: &[u8],
        condition: Option<&str>,
    ) -> Result<Self, Stop> {
        let (px, since) = (trial.soon(), Instant::now());
        let text = px.as_millis().to_string();
        let ask: Ask = match condition {
            Some(condition) => ask!["SET", key, "v", condition, "PX", text],
            None => ask!["SET", key, "v", "PX", text],
        };
        trial.expect(&ask, OK).await?;
        Ok(Self { since, px })
    }

    /// Returns whether it surely is there: what was asked since was answered in time.
    fn is_there(&self) -> bool {
        self.since.elapsed() < self.px
    }

    /// Waits until it surely is gone.
    async fn over(&self) {
        sleep(self.px * 2).await;
    }
}

pub(super) async fn expires(trial: &mut Trial) -> Done {
    let key = trial.key("long");
    // More milliseconds than 31 bits have.
    trial.expect(&ask!["SET", key, "v", "PX", "2147483648"], OK).await?;
    let second = trial.key("second");
    trial.expect(&ask!["SET", second, "v", "PX", "1000"], OK).await?;
    let names = ["get", "del", "vdel", "nx", "nex"];
    let mut last = None;
    for name in names {
        let key = trial.key(name);
        let condition = match name {
            "nx" => Some("NX"),
            "nex" => Some("NEX"),
            _ => None,
        };
        let passing = Passing::set_with(trial, &key, condition).await?;
        let found = trial.ask(&ask!["GET", key]).await?;
        let is_there = found.0.payload == *b"$1\r\nv\r\n".as_slice();
        trial.must(is_there || !passing.is_there(), "expected the value before its time is over");
        last = Some(passing);
    }
    if let Some(last) = last {
        last.over().await;
    }
    sleep(Duration::from_millis(700)).await;
    trial.has(&second, None).await?;
    let [get, del, vdel, nx, nex] = names.map(|name| trial.key(name));
    trial.has(&get, None).await?;
    trial.expect(&ask!["DEL", del], ZERO).await?;
    trial.expect(&ask!["VDEL", vdel, "v"], ZERO).await?;
    trial.expect(&ask!["SET", nx, "w", "NX"], OK).await?;
    trial.expect(&ask!["SET", nex, "w", "NEX"], OK).await?;
    trial.has(&key, Some("v")).await.map(drop)
}

pub(super) async fn counts_anew(trial: &mut Trial) -> Done {
    let (sooner, later) = (trial.key("sooner"), trial.key("later"));
    let px = trial.soon().as_millis().to_string();
    Passing::set(trial, &later).await?;
    trial.expect(&ask!["SET", later, "v", "NEX", "PX", "600000"], OK).await?;
    trial.expect(&ask!["SET", sooner, "v", "PX", "600000"], OK).await?;
    trial.expect(&ask!["SET", sooner, "v", "NEX", "PX", px], OK).await?;
    // An expiry goes with what it is of.
    let anew = trial.key("anew");
    Passing::set(trial, &anew).await?;
    trial.ask(&ask!["DEL", anew]).await?;
    trial.set(&anew, "v").await?;
    sleep(trial.soon() * 2).await;
    trial.has(&later, Some("v")).await?;
    trial.has(&anew, Some("v")).await?;
    trial.has(&sooner, None).await.map(drop)
}

pub(super) async fn removed(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    let passing = Passing::set(trial, &key).await?;
    trial.expect(&ask!["SET", key, "w"], OK).await?;
    passing.over().await;
    let expected = crate::ask::blob(b"w");
    trial.chosen(&ask!["GET", key], expected).await.map(drop)
}

pub(super) async fn refused(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    let passing = Passing::set(trial, &key).await?;
    for ask in [ask!["SET", key, "w", "NX", "PX", "600000"], ask!["SET", key, "w", "NEX"]] {
        let told = trial.ask(&ask).await?;
        let is_applied = told.0.payload == OK;
        if is_applied && !passing.is_there() {
            return Err(Stop::Skipped("answers take too long for it"));
        }
        trial.must(!is_applied, "expected that it is not applied");
    }
    passing.over().await;
    trial.has(&key, None).await.map(drop)
}

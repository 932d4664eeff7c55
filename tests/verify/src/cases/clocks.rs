use crate::ask::{Ask, By, ask};
use crate::trial::{Done, OK, Trial};

const AHEAD: &str = "the request timestamp is too far in the future; ensure that the client and broker system clocks are synchronized";

fn set(trial: &Trial) -> Ask {
    let key = trial.key("k");
    ask!["SET", key, "v"]
}

pub(super) async fn missing(trial: &mut Trial) -> Done {
    let ask = set(trial).untimed();
    trial.refused(&ask, "missing timestamp").await?;
    trial.has(&trial.key("k"), None).await?;
    Ok(())
}

pub(super) async fn malformed(trial: &mut Trial) -> Done {
    for text in trial.sample(super::clockless()?) {
        let ask = set(trial).at(text);
        trial.refused(&ask, "malformed timestamp").await?;
    }
    trial.has(&trial.key("k"), None).await?;
    Ok(())
}

pub(super) async fn padded(trial: &mut Trial) -> Done {
    let now = trial.unix_ms();
    for text in [format!("{now:015}:00000:verify"), format!("{now:020}:{:020}:verify", 7)] {
        let ask = set(trial).at(text);
        trial.expect(&ask, OK).await?;
    }
    Ok(())
}

pub(super) async fn ahead(trial: &mut Trial) -> Done {
    for ms in [75_000, 3_600_000, 10_000_000_000_000] {
        let ask = set(trial).at(trial.stamp(ms));
        trial.refused(&ask, AHEAD).await?;
    }
    trial.has(&trial.key("k"), None).await?;
    Ok(())
}

pub(super) async fn nearly_ahead(trial: &mut Trial) -> Done {
    let ask = set(trial).at(trial.stamp(40_000));
    trial.expect(&ask, OK).await?;
    // Others can still write.
    let key = trial.key("other");
    trial.expect(&ask!["SET", key, "v"].by(By::B), OK).await?;
    Ok(())
}

pub(super) async fn behind(trial: &mut Trial) -> Done {
    for text in ["1696374425000:0:verify", "0:0:verify"] {
        let ask = set(trial).at(text);
        trial.expect(&ask, OK).await?;
    }
    Ok(())
}

pub(super) async fn refused(trial: &mut Trial) -> Done {
    let ahead = trial.stamp(3_600_000);
    let ask = set(trial).at(ahead.clone());
    trial.refused(&ask, AHEAD).await?;
    let ask = set(trial).token(ahead);
    let told = trial.ask(&ask).await?;
    trial.must(told.error().is_some(), "expected that the token is refused");
    let key = trial.key("other");
    let reply = trial.expect(&ask!["SET", key, "v"], OK).await?;
    let limit = trial.unix_ms() + 120_000;
    trial.must(
        reply.version().is_none_or(|version| version.wall < limit),
        "expected a version of now, got one of what was refused",
    );
    Ok(())
}

pub(super) async fn of_set_alone(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    for ask in [
        ask!["GET", key],
        ask!["DEL", key],
        ask!["VDEL", key, "v"],
        ask!["KEYNOTIFY", key],
        ask!["KEYNOTIFY", key, "STOP"],
    ] {
        let hours_ahead = trial.stamp(7_200_000);
        for ask in
            trial.sample(vec![ask.clone().at("x"), ask.clone().at(hours_ahead), ask.untimed()])
        {
            let reply = trial.ask(&ask).await?;
            let told = reply.error().map(str::to_owned);
            trial.may(told.is_none(), "expected that __ts does not matter");
        }
    }
    Ok(())
}

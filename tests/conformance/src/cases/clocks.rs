use crate::request::{By, Request, request};
use crate::trial::{Done, OK, Trial};

pub(super) const AHEAD: &str = "the request timestamp is too far in the future; \
    ensure that the client and broker system clocks are synchronized";

fn set(trial: &Trial) -> Request {
    let key = trial.key("k");
    request!["SET", key, "v"]
}

pub(super) async fn missing(trial: &mut Trial) -> Done {
    let request = set(trial).untimed();
    trial.expect_refusal(&request, "missing timestamp").await?;
    trial.expect_value(&trial.key("k"), None).await?;
    Ok(())
}

pub(super) async fn malformed(trial: &mut Trial) -> Done {
    for text in trial.sample(super::malformed_clocks()?) {
        let request = set(trial).at(text);
        trial.expect_refusal(&request, "malformed timestamp").await?;
    }
    trial.expect_value(&trial.key("k"), None).await?;
    Ok(())
}

pub(super) async fn padded(trial: &mut Trial) -> Done {
    let now = trial.unix_ms();
    for text in [format!("{now:015}:00000:verify"), format!("{now:020}:{:020}:verify", 7)] {
        let request = set(trial).at(text);
        trial.expect(&request, OK).await?;
    }
    Ok(())
}

pub(super) async fn ahead(trial: &mut Trial) -> Done {
    for ms in [75_000, 3_600_000, 10_000_000_000_000] {
        let request = set(trial).at(trial.stamp(ms));
        trial.expect_refusal(&request, AHEAD).await?;
    }
    trial.expect_value(&trial.key("k"), None).await?;
    Ok(())
}

pub(super) async fn nearly_ahead(trial: &mut Trial) -> Done {
    let request = set(trial).at(trial.stamp(40_000));
    trial.expect(&request, OK).await?;
    // Other clients can still write.
    let key = trial.key("other");
    trial.expect(&request!["SET", key, "v"].by(By::B), OK).await?;
    Ok(())
}

pub(super) async fn behind(trial: &mut Trial) -> Done {
    for text in ["1696374425000:0:verify", "0:0:verify"] {
        let request = set(trial).at(text);
        trial.expect(&request, OK).await?;
    }
    Ok(())
}

pub(super) async fn refused(trial: &mut Trial) -> Done {
    let ahead = trial.stamp(3_600_000);
    let request = set(trial).at(ahead.clone());
    trial.expect_refusal(&request, AHEAD).await?;
    let request = set(trial).token(ahead);
    let got = trial.request(&request).await?;
    trial.must(got.error().is_some(), "expected that the token is refused");
    let key = trial.key("other");
    let reply = trial.expect(&request!["SET", key, "v"], OK).await?;
    let limit = trial.unix_ms() + 120_000;
    trial.must(
        reply.version().is_none_or(|version| version.wall < limit),
        "expected a version of now, got one of what was refused",
    );
    Ok(())
}

pub(super) async fn set_only(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    for request in [
        request!["GET", key],
        request!["DEL", key],
        request!["VDEL", key, "v"],
        request!["KEYNOTIFY", key],
        request!["KEYNOTIFY", key, "STOP"],
    ] {
        let hours_ahead = trial.stamp(7_200_000);
        for request in trial.sample(vec![
            request.clone().at("x"),
            request.clone().at(hours_ahead),
            request.untimed(),
        ]) {
            let reply = trial.request(&request).await?;
            let got = reply.error().map(str::to_owned);
            trial.should(got.is_none(), "expected that __ts does not matter");
        }
    }
    Ok(())
}

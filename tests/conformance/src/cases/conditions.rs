use std::time::Duration;

use crate::request::{Dialect, request};
use crate::trial::{Done, OK, ONE, Trial};

pub(super) async fn nx(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    trial.expect(&request!["SET", key, "v", "NX"], OK).await?;
    trial.not_applied(&request!["SET", key, "v", "NX"]).await?;
    trial.not_applied(&request!["SET", key, "w", "NX"]).await?;
    trial.expect_value(&key, Some("v")).await?;
    trial.expect(&request!["DEL", key], ONE).await?;
    trial.expect(&request!["SET", key, "w", "NX"], OK).await?;
    Ok(())
}

pub(super) async fn nex(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    trial.expect(&request!["SET", key, "Client1", "NEX"], OK).await?;
    trial.expect(&request!["SET", key, "Client1", "NEX"], OK).await?;
    for other in ["Client2", "client1", "Client", "Client10", ""] {
        trial.not_applied(&request!["SET", key, other, "NEX"]).await?;
    }
    trial.not_applied(&request!["SET", key, "Client2", "NEX", "PX", "60000"]).await?;
    trial.expect_value(&key, Some("Client1")).await?;
    Ok(())
}

pub(super) async fn refused(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    let version = trial.set(&key, "v").await?;
    trial.not_applied(&request!["SET", key, "w", "NX", "PX", "100"]).await?;
    trial.not_applied(&request!["SET", key, "w", "NEX", "PX", "100"]).await?;
    tokio::time::sleep(Duration::from_millis(200)).await;
    let got = trial.expect_value(&key, Some("v")).await?;
    let got = got.timestamp().unwrap_or("none");
    trial.must(got == version, format_args!("expected the version {version}, got {got}"));
    Ok(())
}

pub(super) async fn dialect(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    trial.set(&key, "v").await?;
    for dialect in Dialect::BOTH {
        trial.not_applied(&request!["SET", key, "w", "NX"].dialect(dialect)).await?;
        trial.not_applied(&request!["VDEL", key, "w"].dialect(dialect)).await?;
    }
    Ok(())
}

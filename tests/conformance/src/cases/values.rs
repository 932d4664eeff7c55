use crate::request::{blob, request};
use crate::trial::{ABSENT, Done, OK, ONE, Trial, ZERO};

pub(super) async fn set_get(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    trial.set(&key, "value").await?;
    trial.expect_value(&key, Some("value")).await?;
    Ok(())
}

pub(super) async fn absent(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    trial.expect(&request!["GET", key], ABSENT).await?;
    Ok(())
}

pub(super) async fn replaced(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    for value in ["first", "another one", "x"] {
        trial.set(&key, value).await?;
        trial.expect_value(&key, Some(value)).await?;
    }
    Ok(())
}

pub(super) async fn empty(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    trial.set(&key, "").await?;
    trial.expect(&request!["GET", key], "$0\r\n\r\n").await?;
    trial.expect(&request!["VDEL", key, ""], ONE).await?;
    trial.expect(&request!["GET", key], ABSENT).await?;
    Ok(())
}

pub(super) async fn binary(trial: &mut Trial) -> Done {
    let all: Vec<u8> = (0..=255).collect();
    let keys = [trial.key(&all), trial.key("$1\r\nk\r\n"), trial.key([0xff, 0xfe, 0x80])];
    let values = [all, b"\r\n-ERR x\r\n$-1\r\n".to_vec(), vec![0; 3]];
    for (key, value) in keys.iter().zip(&values) {
        trial.expect(&request!["SET", key, value], OK).await?;
    }
    for (key, value) in keys.iter().zip(&values) {
        trial.expect(&request!["GET", key], blob(value)).await?;
    }
    Ok(())
}

pub(super) async fn large(trial: &mut Trial) -> Done {
    let value: Vec<u8> = (0..=255).cycle().take(65_000).collect();
    let mut key = trial.key("");
    key.resize(6_500, b'k');
    trial.expect(&request!["SET", key, value], OK).await?;
    trial.expect(&request!["GET", key], blob(&value)).await?;
    Ok(())
}

pub(super) async fn keys_differ(trial: &mut Trial) -> Done {
    let keys = ["k", "K", "k ", "k\0", "kk"].map(|name| trial.key(name));
    for (key, value) in keys.iter().zip(["1", "2", "3", "4", "5"]) {
        trial.set(key, value).await?;
    }
    for (key, value) in keys.iter().zip(["1", "2", "3", "4", "5"]) {
        trial.expect_value(key, Some(value)).await?;
    }
    Ok(())
}

pub(super) async fn del(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    trial.expect(&request!["DEL", key], ZERO).await?;
    trial.set(&key, "v").await?;
    trial.expect(&request!["DEL", key], ONE).await?;
    trial.expect(&request!["DEL", key], ZERO).await?;
    trial.expect_value(&key, None).await?;
    Ok(())
}

pub(super) async fn vdel(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    trial.expect(&request!["VDEL", key, "v"], ZERO).await?;
    trial.set(&key, "Client1").await?;
    for other in ["Client2", "client1", "Client", "Client10", ""] {
        trial.not_applied(&request!["VDEL", key, other]).await?;
    }
    trial.expect_value(&key, Some("Client1")).await?;
    trial.expect(&request!["VDEL", key, "Client1"], ONE).await?;
    trial.expect(&request!["VDEL", key, "Client1"], ZERO).await?;
    trial.expect_value(&key, None).await?;
    Ok(())
}

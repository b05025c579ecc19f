//! `sendslot tenant list`.

use sendslot_runtime::control::{Ask, Failure, PausedTenant, Request, Status, TenantStatus};
use serde::Serialize;

use crate::{
    error::Error,
    exit::Exit,
    invoke::{SHORT, caller},
    output::Output,
    stack::Stack,
    text::{some, table},
};

/// A tenant, for programs.
#[derive(Serialize)]
struct Tenant<'a> {
    #[serde(flatten)]
    status: &'a TenantStatus,
    paused: Option<&'a PausedTenant>,
}

pub(crate) async fn list(stack: &Stack, out: &mut Output) -> Result<Exit, Error> {
    let request = Request::Status(Ask { caller: caller() });
    let status: Status = stack.control()?.ask(&request, SHORT).await?;
    if !status.redis.ok {
        return Err(Error::Control(Failure {
            code: "redis_unavailable".to_owned(),
            message: status.redis.error.unwrap_or_default(),
        }));
    }
    if out.json() {
        let tenants = status.tenants.iter().map(|tenant| Tenant {
            status: tenant,
            paused: paused(&status, &tenant.tenant),
        });
        let tenants: Vec<Tenant<'_>> = tenants.collect();
        out.value(&serde_json::json!({ "tenants": tenants }))?;
    } else if status.tenants.is_empty() {
        out.say("no tenants are known: `make tenant NAME=…` makes one")?;
    } else {
        out.say(&text(&status))?;
    }
    Ok(if status.tenants.is_empty() {
        Exit::Nothing
    } else {
        Exit::Done
    })
}

fn paused<'a>(status: &'a Status, tenant: &str) -> Option<&'a PausedTenant> {
    status.paused.iter().find(|paused| paused.tenant == tenant)
}

fn text(status: &Status) -> String {
    let rows = status.tenants.iter().map(|tenant| {
        let state = if paused(status, &tenant.tenant).is_some() {
            "paused"
        } else {
            "sends"
        };
        let set = tenant.configuration_set.clone();
        let more = if tenant.more_parked { "+" } else { "" };
        let parked: u64 = tenant.lanes.values().map(|lane| lane.parked).sum();
        vec![
            tenant.tenant.clone(),
            state.to_owned(),
            set.unwrap_or_else(|| "-".to_owned()),
            tenant.weight.to_string(),
            some(tenant.sent_1h),
            some(tenant.sent_24h),
            part(tenant.bounced_24h, tenant.sent_24h),
            part(tenant.complained_24h, tenant.sent_24h),
            format!("{}{more}", some(parked)),
        ]
    });
    let rows: Vec<Vec<String>> = rows.collect();
    let head = [
        "tenant",
        "state",
        "set",
        "weight",
        "sent 1 h",
        "sent 24 h",
        "bounced",
        "complained",
        "parked",
    ];
    table(3, &head, &rows)
}

/// A part in percent, to hundredths.
fn part(of: u64, all: u64) -> String {
    if of == 0 || all == 0 {
        return "-".to_owned();
    }
    let hundredths = of.saturating_mul(10_000) / all;
    format!("{}.{:02} %", hundredths / 100, hundredths % 100)
}

//! Who gives out slots: the pure model, or the scripts on a private server. Both run on the world's clock.

use sendslot_domain::{
    Budget, Lane, Moment, TenantName,
    schedule::{Booking, Schedule, Standing, Tenant},
};
use sendslot_schedule::{
    Ask, Keys, Seed,
    testing::{Clocked, PrivateServer},
};
use tokio::runtime::Runtime;

use super::Result;

/// What a schedule is set up with.
#[derive(Clone)]
pub(super) struct Setup {
    pub(super) now: Moment,
    pub(super) budget: Budget,
    pub(super) tenants: Vec<(TenantName, Tenant)>,
}

/// Gives out slots to messages of one recipient.
pub(super) trait Desk {
    fn book(
        &mut self,
        now: Moment,
        lane: Lane,
        asks: &[(TenantName, Standing)],
    ) -> Result<Vec<Booking>>;

    fn pause(&mut self, now: Moment, tenant: &TenantName) -> Result<()>;

    fn set_budget(&mut self, now: Moment, budget: Budget) -> Result<()>;
}

/// The pure model.
pub(super) struct Model(Schedule, usize);

impl Model {
    pub(super) fn new(setup: &Setup) -> Self {
        let tenants = setup.tenants.len();
        let mut schedule = Schedule::new(setup.now, setup.budget.for_tenants(tenants));
        for (name, tenant) in &setup.tenants {
            schedule.set_tenant(name.clone(), *tenant);
        }
        Self(schedule, tenants)
    }
}

impl Desk for Model {
    fn book(
        &mut self,
        now: Moment,
        lane: Lane,
        asks: &[(TenantName, Standing)],
    ) -> Result<Vec<Booking>> {
        let book = |(tenant, standing): &(TenantName, Standing)| {
            self.0.book(now, lane, tenant, 1, *standing)
        };
        Ok(asks.iter().map(book).collect())
    }

    fn pause(&mut self, now: Moment, tenant: &TenantName) -> Result<()> {
        self.0.pause(now, tenant, None);
        Ok(())
    }

    fn set_budget(&mut self, now: Moment, budget: Budget) -> Result<()> {
        self.0.set_budget(now, budget.for_tenants(self.1));
        Ok(())
    }
}

/// The scripts, on a server of their own.
pub(super) struct Scripts {
    runtime: Runtime,
    clocked: Clocked,
    setup: Setup,
    clock: Moment,
    _server: PrivateServer,
}

impl Scripts {
    pub(super) fn new(setup: &Setup) -> Result<Self> {
        let server = PrivateServer::start();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let clocked = runtime.block_on(Clocked::new(&server, Keys::of("prove")?));
        let mut scripts = Self {
            runtime,
            clocked,
            setup: setup.clone(),
            clock: Moment(0),
            _server: server,
        };
        scripts.set_budget(setup.now, setup.budget)?;
        Ok(scripts)
    }

    fn set_clock(&mut self, now: Moment) -> Result<()> {
        if now != self.clock {
            self.clock = now;
            self.runtime.block_on(self.clocked.set(now))?;
        }
        Ok(())
    }
}

impl Desk for Scripts {
    fn book(
        &mut self,
        now: Moment,
        lane: Lane,
        asks: &[(TenantName, Standing)],
    ) -> Result<Vec<Booking>> {
        use sendslot_schedule::Booking as Answer;
        self.set_clock(now)?;
        let asks: Vec<Ask> = asks
            .iter()
            .map(|(tenant, standing)| Ask {
                tenant: tenant.clone(),
                cost: 1,
                standing: *standing,
            })
            .collect();
        let answers = self
            .runtime
            .block_on(self.clocked.schedule.book(lane, &asks))?;
        let known = |answer| match answer {
            Answer::Slot(slot) => Ok(Booking::Slot(slot)),
            Answer::Wait(wait) => Ok(Booking::Wait(wait)),
            other => Err(format!("{other:?}").into()),
        };
        answers.into_iter().map(known).collect()
    }

    fn pause(&mut self, now: Moment, tenant: &TenantName) -> Result<()> {
        self.set_clock(now)?;
        Ok(self
            .runtime
            .block_on(self.clocked.schedule.pause(tenant, None, "prove"))?)
    }

    fn set_budget(&mut self, now: Moment, budget: Budget) -> Result<()> {
        self.set_clock(now)?;
        let seed = Seed {
            source: "prove".to_owned(),
            budget,
            tenants: self.setup.tenants.clone(),
        };
        self.runtime.block_on(self.clocked.schedule.seed(&seed))?;
        Ok(())
    }
}

//! Who may do what to whom.

use super::*;

/// All that a viewer holds, for a key.
const VIEWER: [&str; 8] = [
    "organizations:read",
    "tickets:read",
    "workflows:read",
    "search:read",
    "inventory:read",
    "cloud:read",
    "backup:read",
    "analytics:read",
];

#[track_caller]
fn needs(answer: &Answer, scope: &str) {
    assert_eq!(answer.problem("insufficient_scope")["required_scope"], scope);
}

over_http! {
    async fn people_are_the_admins_and_technicians_know_whom_to_give_work_to(server: Server) {
        let acme = server.tenant("acme").await;
        let made = make(&server, &acme, "ann@acme.test", "viewer").await;
        for role in [Role::Technician, Role::Viewer] {
            let cookie = server.user(&acme.tenant, role).await;
            if role == Role::Technician {
                let found = server.get(format!("{USERS}?q=ann&status=active")).cookie(&cookie).await.ok(200);
                assert_eq!(found["data"], json!([made]));
                assert_eq!(server.get(one(&made)).cookie(&cookie).await.ok(200), made);
                let assigned = json!({"subject": "Printer", "assignee_id": found["data"][0]["id"]});
                server.post("/api/psa/tickets").cookie(&cookie).json(&assigned).await.is(201);
            } else {
                needs(&server.get(USERS).cookie(&cookie).await, "users:read");
                needs(&server.get(one(&made)).cookie(&cookie).await, "users:read");
            }
            needs(&server.post(USERS).cookie(&cookie).json(&input("b@acme.test", "viewer")).await, "users:write");
            needs(&put(&server, &cookie, &made, &but(&made, "name", "B")).await, "users:write");
            needs(&server.delete(one(&made)).cookie(&cookie).await, "users:write");
        }
        assert_eq!(read(&server, &acme.admin, &made).await, made);
    }

    async fn nobody_gives_a_role_that_holds_more_than_they_do(server: Server) {
        let acme = server.tenant("acme").await;
        let bare = server.key(&acme, &["users:write"]).await.plain;
        let limited = server.key(&acme, &[&["users:*"][..], &VIEWER].concat()).await.plain;
        for (role, scope) in
            [("admin", "api_keys:read"), ("technician", "organizations:read"), ("viewer", "organizations:read")]
        {
            let body = input("b@acme.test", role);
            needs(&server.post(USERS).key(&bare).json(&body).await, scope);
        }
        for (role, scope) in [("admin", "api_keys:read"), ("technician", "organizations:write")] {
            let body = input("b@acme.test", role);
            needs(&server.post(USERS).key(&limited).json(&body).await, scope);
        }
        let made = server.post(USERS).key(&limited).json(&input("b@acme.test", "viewer")).await.ok(201);
        needs(&server.put(one(&made)).key(&limited).json(&but(&made, "role", "admin")).await, "api_keys:read");
        server.put(one(&made)).key(&limited).json(&but(&made, "email", "c@acme.test")).await.is(200);
        server.delete(one(&made)).key(&limited).await.is(204);
    }

    async fn nobody_changes_anything_of_a_user_who_holds_more_than_they_do(server: Server) {
        let acme = server.tenant("acme").await;
        let admin = make(&server, &acme, "ann@acme.test", "admin").await;
        let limited = server.key(&acme, &[&["users:*"][..], &VIEWER].concat()).await.plain;
        // An e-mail address is a way in, and a lower role is taken from somebody.
        for body in [but(&admin, "role", "viewer"), json!({"email": "evil@acme.test", "name": "Ann", "role": "viewer"})] {
            needs(&server.put(one(&admin)).key(&limited).json(&body).await, "api_keys:read");
        }
        needs(&server.delete(one(&admin)).key(&limited).await, "api_keys:read");
        // Whoever is disabled holds what they held.
        server.delete(one(&admin)).cookie(&acme.admin).await.is(204);
        let body = json!({"email": "evil@acme.test", "name": "Ann", "role": "viewer", "status": "active"});
        needs(&server.put(one(&admin)).key(&limited).json(&body).await, "api_keys:read");
    }

    async fn a_platform_operator_is_changed_by_their_like_alone(server: Server) {
        let acme = server.tenant("acme").await;
        let cookie = operator(&server, &acme).await;
        let op = me(&server, &cookie).await;
        assert_eq!(op["platform_operator"], true);
        needs(&put(&server, &acme.admin, &op, &but(&op, "name", "X")).await, "platform:read");
        needs(&server.delete(one(&op)).cookie(&acme.admin).await, "platform:read");
        let all = server.key(&acme, &["*"]).await.plain;
        needs(&server.delete(one(&op)).key(&all).await, "platform:read");
        let renamed = put(&server, &cookie, &op, &but(&op, "name", "X")).await.ok(200);
        assert_eq!((&renamed["name"], &renamed["platform_operator"]), (&json!("X"), &json!(true)));
        let made = server.post(USERS).cookie(&cookie).json(&input("b@acme.test", "admin")).await.ok(201);
        assert_eq!(made["platform_operator"], false, "it is not passed on");
    }

    async fn nobody_disables_or_demotes_themselves(server: Server) {
        let acme = server.tenant("acme").await;
        make(&server, &acme, "other@acme.test", "admin").await;
        let own = me(&server, &acme.admin).await;
        for role in ["technician", "viewer"] {
            put(&server, &acme.admin, &own, &but(&own, "role", role)).await.problem("conflict");
        }
        put(&server, &acme.admin, &own, &but(&own, "status", "disabled")).await.problem("conflict");
        server.delete(one(&own)).cookie(&acme.admin).await.problem("conflict");
        assert_eq!(me(&server, &acme.admin).await, own);
        let mut body = but(&own, "name", "Me");
        body["email"] = json!("me@acme.test");
        let changed = put(&server, &acme.admin, &own, &body).await.ok(200);
        assert_eq!((&changed["name"], &changed["email"]), (&json!("Me"), &json!("me@acme.test")));
        let session = server.get(SESSION).cookie(&acme.admin).await.ok(200);
        assert_eq!(session["actor"]["email"], "me@acme.test", "in force at once");
    }

    async fn a_tenant_keeps_one_active_admin(server: Server) {
        let acme = server.tenant("acme").await;
        let (own, key) = (me(&server, &acme.admin).await, server.key(&acme, &["*"]).await.plain);
        let refused = async || {
            for body in [but(&own, "role", "technician"), but(&own, "status", "disabled")] {
                server.put(one(&own)).key(&key).json(&body).await.problem("conflict");
            }
            server.delete(one(&own)).key(&key).await.problem("conflict");
        };
        refused().await;
        // One who cannot sign in is none.
        let other = make(&server, &acme, "other@acme.test", "admin").await;
        server.delete(one(&other)).key(&key).await.is(204);
        refused().await;
        server.put(one(&other)).key(&key).json(&but(&other, "status", "active")).await.is(200);
        server.put(one(&own)).key(&key).json(&but(&own, "role", "technician")).await.is(200);
        server.delete(one(&other)).key(&key).await.problem("conflict");
    }

    async fn refusals_come_in_the_order_of_the_contract(server: Server) {
        let acme = server.tenant("acme").await;
        let limited = server.key(&acme, &[&["users:*"][..], &VIEWER].concat()).await.plain;
        let viewer = make(&server, &acme, "ann@acme.test", "viewer").await;
        let (own, nobody) = (me(&server, &acme.admin).await, json!({"id": "usr_01jd8z6v2mfkpb7h3q9xw5t4ra"}));
        let call = |user: &Value, body: &Value| {
            server.put(one(user)).key(&limited).header("if-match", "\"9\"").json(body)
        };
        needs(&call(&nobody, &input("b@acme.test", "admin")).await, "api_keys:read");
        call(&nobody, &input("b@acme.test", "viewer")).await.problem("not_found");
        needs(&call(&own, &input("b@acme.test", "viewer")).await, "api_keys:read");
        let taken = own["email"].as_str().unwrap();
        call(&viewer, &input(taken, "viewer")).await.problem("version_mismatch");
        server.put(one(&viewer)).key(&limited).json(&input(taken, "viewer")).await.problem("conflict");
        let delete = server.delete(one(&viewer)).cookie(&acme.admin).header("if-match", "\"9\"").await;
        delete.problem("version_mismatch");
        for id in ["nonsense", "", "usr_00000000000000000000000000"] {
            let nobody = json!({"id": id});
            server.get(one(&nobody)).cookie(&acme.admin).await.problem("not_found");
            server.delete(one(&nobody)).cookie(&acme.admin).await.problem("not_found");
        }
        server.put(USERS).cookie(&acme.admin).json(&input("b@acme.test", "viewer")).await.problem("missing_parameter");
    }

    async fn a_user_of_another_tenant_is_not_there(server: Server) {
        let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
        let ann = make(&server, &acme, "ann@acme.test", "viewer").await;
        server.get(one(&ann)).cookie(&globex.admin).await.problem("not_found");
        put(&server, &globex.admin, &ann, &but(&ann, "name", "X")).await.problem("not_found");
        server.delete(one(&ann)).cookie(&globex.admin).await.problem("not_found");
        let listed = server.get(format!("{USERS}?email=ann@acme.test")).cookie(&globex.admin).await.ok(200);
        assert_eq!(listed["data"], json!([]));
    }
}

//! The tables for diesel; `migrations/` says what their columns mean.

diesel::table! {
    campaign (id) {
        id -> BigInt,
        name -> Text,
        provider -> Nullable<Text>,
        sender -> Nullable<Text>,
        rate -> Text,
        priority -> Integer,
        state -> Integer,
        state_reason -> Nullable<Text>,
        unique_by -> Nullable<Text>,
        created_at -> BigInt,
        send_window -> Text,
        budget -> Text,
        approval -> Integer,
        approved_id -> BigInt,
        approved_at -> BigInt,
        wanted_by -> Text,
    }
}

diesel::table! {
    import (id) {
        id -> BigInt,
        campaign_id -> BigInt,
        file -> Text,
        hash -> Text,
        last_line -> BigInt,
        row_count -> BigInt,
        accepted -> BigInt,
        duplicates -> BigInt,
        suppressed -> BigInt,
        rejected -> BigInt,
        replaced -> BigInt,
        template -> Nullable<Text>,
        sample -> Nullable<Text>,
        gsm7 -> BigInt,
        ucs2 -> BigInt,
        created_at -> BigInt,
        finished_at -> Nullable<BigInt>,
        posted_by -> Nullable<Text>,
    }
}

diesel::table! {
    sms (id) {
        id -> BigInt,
        campaign_id -> BigInt,
        import_id -> Nullable<BigInt>,
        phone -> Text,
        content -> Text,
        params -> Text,
        segments -> Nullable<Integer>,
        state -> Integer,
        in_doubt -> Bool,
        due_at -> BigInt,
        expires_at -> Nullable<BigInt>,
        attempts -> Integer,
        worker_id -> Nullable<BigInt>,
        claim -> BigInt,
        claimed_at -> Nullable<BigInt>,
        unknown_at -> Nullable<BigInt>,
        doubt_claim -> Nullable<BigInt>,
        claimed_provider -> Nullable<Text>,
        reference -> Nullable<Text>,
        dedupe_key -> Nullable<Text>,
        last_class -> Nullable<Text>,
        last_code -> Nullable<Text>,
        last_reason -> Nullable<Text>,
        late_accepted -> Integer,
        late_message_id -> Nullable<Text>,
        late_claims -> Nullable<Text>,
        late_provider -> Nullable<Text>,
        refunded_claim -> Nullable<BigInt>,
        created_at -> BigInt,
        doubt_since -> Nullable<BigInt>,
        resend_approved -> Bool,
        lane -> Integer,
    }
}

// The rest of `sms`: tables of diesel have at most 32 columns.
diesel::table! {
    #[sql_name = "sms"]
    sms_rest (id) {
        id -> BigInt,
        late_awaits_receipt -> Nullable<Bool>,
        reserved -> BigInt,
        reserved_earlier -> BigInt,
        reserved_month -> Nullable<Text>,
    }
}

diesel::table! {
    lane (campaign_id, number) {
        campaign_id -> BigInt,
        #[sql_name = "lane"]
        number -> Integer,
        provider -> Text,
        sender -> Text,
    }
}

diesel::table! {
    failover (campaign_id, provider, fallback, since) {
        campaign_id -> BigInt,
        provider -> Text,
        fallback -> Text,
        since -> BigInt,
        last_at -> BigInt,
        reason -> Text,
        messages -> BigInt,
    }
}

diesel::table! {
    sender_off (provider, sender) {
        provider -> Text,
        sender -> Text,
        since -> BigInt,
    }
}

diesel::table! {
    sms_sent (id) {
        id -> BigInt,
        campaign_id -> BigInt,
        import_id -> Nullable<BigInt>,
        phone -> Text,
        reference -> Nullable<Text>,
        provider -> Text,
        message_id -> Nullable<Text>,
        segments -> Nullable<Integer>,
        price -> Nullable<Text>,
        attempts -> Integer,
        accepted -> Integer,
        accepted_claims -> Nullable<Text>,
        claim -> BigInt,
        delivery_state -> Nullable<Text>,
        created_at -> BigInt,
        sent_at -> BigInt,
        delivery_class -> Nullable<Text>,
        delivery_code -> Nullable<Text>,
        delivery_reason -> Nullable<Text>,
        delivery_at -> Nullable<BigInt>,
        delivery_note -> Nullable<Text>,
        content -> Nullable<Text>,
        params -> Nullable<Text>,
        resent_at -> Nullable<BigInt>,
        dedupe_key -> Nullable<Text>,
    }
}

diesel::table! {
    sms_failed (id) {
        id -> BigInt,
        campaign_id -> BigInt,
        import_id -> Nullable<BigInt>,
        phone -> Text,
        content -> Text,
        params -> Text,
        segments -> Nullable<Integer>,
        expires_at -> Nullable<BigInt>,
        class -> Text,
        code -> Nullable<Text>,
        reason -> Text,
        attempts -> Integer,
        claim -> BigInt,
        reference -> Nullable<Text>,
        dedupe_key -> Nullable<Text>,
        created_at -> BigInt,
        failed_at -> BigInt,
        doubt_since -> Nullable<BigInt>,
        claimed_provider -> Nullable<Text>,
    }
}

diesel::table! {
    sms_key (campaign_id, dedupe_key) {
        campaign_id -> BigInt,
        dedupe_key -> Text,
        is_sent -> Bool,
    }
}

diesel::table! {
    purged (campaign_id, import_id) {
        campaign_id -> BigInt,
        import_id -> BigInt,
        sent -> BigInt,
        failed -> BigInt,
        unknown -> BigInt,
        cancelled -> BigInt,
        segments -> BigInt,
        attempts -> BigInt,
        repeated -> BigInt,
        purged_at -> BigInt,
        delivered -> BigInt,
        undelivered -> BigInt,
        expired -> BigInt,
        no_report -> BigInt,
    }
}

diesel::table! {
    worker (id) {
        id -> BigInt,
        host -> Text,
        boot_id -> Text,
        pid_namespace -> Text,
        pid -> BigInt,
        process_started -> BigInt,
        concurrency -> Integer,
        started_at -> BigInt,
        heartbeat_at -> BigInt,
        lease_ms -> BigInt,
        limits -> Text,
        activity -> Nullable<Text>,
    }
}

diesel::table! {
    rate_limit (scope) {
        scope -> Text,
        next_us -> BigInt,
        cost_max -> Integer,
        buckets -> Text,
        stopped_until -> BigInt,
        stop_reason -> Nullable<Text>,
        spent -> BigInt,
    }
}

diesel::table! {
    suppression (phone) {
        phone -> Text,
        reason -> Nullable<Text>,
        created_at -> BigInt,
    }
}

diesel::table! {
    dead (phone) {
        phone -> Text,
        code -> Nullable<Text>,
        provider -> Text,
        at -> BigInt,
    }
}

diesel::table! {
    recipient_start (sms_id, claim) {
        sms_id -> BigInt,
        claim -> BigInt,
        phone -> Text,
        ended_at -> Nullable<BigInt>,
    }
}

diesel::table! {
    receipt (id) {
        id -> BigInt,
        provider -> Text,
        message_key -> Text,
        state -> Text,
        part -> Integer,
        parts -> Integer,
        reference -> Nullable<Text>,
        message_id -> Nullable<Text>,
        phone -> Nullable<Text>,
        class -> Nullable<Text>,
        code -> Nullable<Text>,
        reason -> Nullable<Text>,
        at -> Nullable<BigInt>,
        received_at -> BigInt,
        due_at -> Nullable<BigInt>,
        sms_id -> Nullable<BigInt>,
        is_dead_number -> Bool,
    }
}

diesel::table! {
    receipt_pull (provider) {
        provider -> Text,
        holder -> BigInt,
        leased_until -> BigInt,
        pulled_at -> Nullable<BigInt>,
        position -> Nullable<Text>,
    }
}

diesel::table! {
    activity (at, campaign_id, provider) {
        at -> BigInt,
        campaign_id -> BigInt,
        provider -> Text,
        sent -> BigInt,
        failed -> BigInt,
        unknown -> BigInt,
        throttled -> BigInt,
        unavailable -> BigInt,
    }
}

// A view.
diesel::table! {
    #[sql_name = "sms_message"]
    message (id) {
        id -> BigInt,
        campaign_id -> BigInt,
        import_id -> Nullable<BigInt>,
        phone -> Text,
        content -> Nullable<Text>,
        dedupe_key -> Nullable<Text>,
        state -> Text,
        segments -> Nullable<Integer>,
        attempts -> Integer,
        reference -> Nullable<Text>,
        provider -> Nullable<Text>,
        message_id -> Nullable<Text>,
        accepted_claims -> Nullable<Text>,
        class -> Nullable<Text>,
        code -> Nullable<Text>,
        reason -> Nullable<Text>,
        delivery -> Nullable<Text>,
        resent_at -> Nullable<BigInt>,
        created_at -> BigInt,
        at -> BigInt,
    }
}

diesel::allow_tables_to_appear_in_same_query!(
    campaign,
    import,
    message,
    sms,
    lane,
    sms_sent,
    sms_failed,
    sms_key,
    worker,
    suppression,
    dead,
    recipient_start,
    purged,
    receipt,
    receipt_pull,
    attempt
);

diesel::table! {
    intake_key (scope, request_key) {
        scope -> Text,
        request_key -> Text,
        fingerprint -> Text,
        sms_id -> BigInt,
        expires_at -> BigInt,
    }
}

diesel::table! {
    audit (id) {
        id -> BigInt,
        at -> BigInt,
        who -> Text,
        what -> Text,
        campaign -> Nullable<Text>,
        detail -> Text,
    }
}

diesel::table! {
    attempt (sms_id, slot) {
        sms_id -> BigInt,
        slot -> Integer,
        claim -> BigInt,
        at -> BigInt,
        provider -> Text,
        outcome -> Text,
        class -> Text,
        code -> Nullable<Text>,
        reason -> Text,
    }
}

diesel::table! {
    hook (name) {
        name -> Text,
        holder -> BigInt,
        leased_until -> BigInt,
        off_at -> Nullable<BigInt>,
        off_reason -> Nullable<Text>,
        failing_since -> Nullable<BigInt>,
        last_error -> Nullable<Text>,
        delivered -> BigInt,
        skipped -> BigInt,
    }
}

diesel::table! {
    hook_event (id) {
        id -> BigInt,
        hook -> Text,
        event_id -> Text,
        kind -> Text,
        body -> Text,
        phone -> Nullable<Text>,
        created_at -> BigInt,
        state -> Integer,
        at -> BigInt,
        attempts -> Integer,
        last_error -> Nullable<Text>,
    }
}

diesel::table! {
    campaign_watch (campaign_id) {
        campaign_id -> BigInt,
        opened_at -> BigInt,
        due_since -> Nullable<BigInt>,
        stuck_at -> Nullable<BigInt>,
    }
}

diesel::table! {
    reply (id) {
        id -> BigInt,
        provider -> Text,
        reply_key -> Text,
        phone -> Text,
        sender -> Nullable<Text>,
        content -> Text,
        campaign_id -> Nullable<BigInt>,
        received_at -> BigInt,
    }
}

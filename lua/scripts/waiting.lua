-- waiting: counts the waiters, also those that have expired. It writes nothing.
-- ARGV  fence_ttl
-- reply waiting
return tostring(call('ZCARD', queue))

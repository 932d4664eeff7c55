-- The state store protocol in Wireshark and tshark (4.0 or later): verb, key, verdict, clocks and fencing tokens of each PUBLISH,
-- and which reply answers which request. It stands on Wireshark's own dissection of MQTT. Of values it shows the length.
--
-- Copy it to the folder of personal Lua plugins (Help, About, Folders), or: tshark -X lua_script:statestore.lua -r FILE

local statestore = Proto("statestore", "State store protocol")

local f = statestore.fields
f.kind = ProtoField.string("statestore.kind", "Kind")
f.verb = ProtoField.string("statestore.verb", "Verb")
f.key = ProtoField.string("statestore.key", "Key")
f.value_len = ProtoField.uint32("statestore.value_len", "Bytes of the value")
f.condition = ProtoField.string("statestore.condition", "Condition")
f.px = ProtoField.string("statestore.px", "Expires after (ms)")
f.client = ProtoField.string("statestore.client", "Client")
f.verdict = ProtoField.string("statestore.verdict", "Verdict")
f.error = ProtoField.string("statestore.error", "Error")
f.reason = ProtoField.string("statestore.reason", "Reason")
f.ts = ProtoField.string("statestore.ts", "Clock (__ts)")
f.ts_wall = ProtoField.absolute_time("statestore.ts.wall", "Wall", base.UTC)
f.ts_counter = ProtoField.string("statestore.ts.counter", "Counter")
f.ts_node = ProtoField.string("statestore.ts.node", "Node")
f.ft = ProtoField.string("statestore.ft", "Fencing token (__ft)")
f.source = ProtoField.string("statestore.source", "Source (__srcId)")
f.version = ProtoField.string("statestore.version", "Protocol version (__protVer)")
f.request_in = ProtoField.framenum("statestore.request_in", "Request in", base.NONE, frametype.REQUEST)
f.response_in = ProtoField.framenum("statestore.response_in", "Reply in", base.NONE, frametype.RESPONSE)
f.time = ProtoField.relative_time("statestore.time", "Time from the request")

local malformed = ProtoExpert.new("statestore.malformed", "No payload of the protocol", expert.group.MALFORMED, expert.severity.WARN)
statestore.experts = { malformed }

local STORE = "FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8"
local REQUEST = "statestore/v1/" .. STORE .. "/command/invoke"
local NOTIFICATIONS = "clients/statestore/v1/" .. STORE .. "/"

-- Requests and replies that are paired, at most: a few hundred bytes each. Later ones are shown unpaired.
local PAIRS_MAX = 200000
-- Bytes of an error that are looked at.
local ERROR_MAX = 1000
-- Elements of an array, and user properties of a PUBLISH, that are looked at.
local ELEMENTS_MAX = 8
local PROPERTIES_MAX = 32

local packets = Field.new("mqtt")

-- By response topic and correlation data; by frame and place in the frame.
local requests, request_of, reply_of, pairs_made

function statestore.init()
    requests, request_of, reply_of, pairs_made = {}, {}, {}, 0
end

-- A text of arbitrary bytes that stays on its line.
local function shown(text)
    return (text:gsub("[%c\127-\255]", function(char) return string.format("\\x%02x", char:byte()) end))
end

local function number_at(text, at, bytes)
    if at + bytes - 1 > #text then return nil end
    local number = 0
    for place = at, at + bytes - 1 do number = number * 256 + text:byte(place) end
    return number, at + bytes
end

local function varint_at(text, at)
    local number, scale = 0, 1
    for place = at, at + 3 do
        local byte = text:byte(place)
        if not byte then return nil end
        number = number + (byte % 128) * scale
        if byte < 128 then return number, place + 1 end
        scale = scale * 128
    end
    return nil
end

local function text_at(text, at)
    local len, from = number_at(text, at, 2)
    if not len or from + len - 1 > #text then return nil end
    return text:sub(from, from + len - 1), from + len
end

-- Bytes of the properties that are neither texts nor variable integers.
local FIXED = {
    [0x01] = 1, [0x02] = 4, [0x11] = 4, [0x13] = 2, [0x17] = 1, [0x18] = 4, [0x19] = 1, [0x21] = 2, [0x22] = 2,
    [0x23] = 2, [0x24] = 1, [0x25] = 1, [0x27] = 4, [0x28] = 1, [0x29] = 1, [0x2a] = 1,
}

-- A PUBLISH of MQTT 5, or nil.
local function publish_of(packet)
    local first = packet:byte(1)
    if not first or math.floor(first / 16) ~= 3 then return nil end
    local _, at = varint_at(packet, 2)
    if not at then return nil end
    local topic
    topic, at = text_at(packet, at)
    if not topic then return nil end
    if math.floor(first / 2) % 4 > 0 then at = at + 2 end
    local len
    len, at = varint_at(packet, at)
    if not len or at + len - 1 > #packet then return nil end
    local publish = { topic = topic, user = {}, payload = packet:sub(at + len), payload_at = at + len - 1 }
    local properties, place, count = packet:sub(at, at + len - 1), 1, 0
    while place <= #properties and count < PROPERTIES_MAX do
        local id = properties:byte(place)
        place, count = place + 1, count + 1
        local value, name
        if id == 0x26 then
            name, place = text_at(properties, place)
            if not name then break end
            value, place = text_at(properties, place)
            if not value then break end
            if publish.user[name] == nil then publish.user[name] = value end
        elseif id == 0x0b then
            _, place = varint_at(properties, place)
            if not place then break end
        elseif FIXED[id] then
            place = place + FIXED[id]
        else
            value, place = text_at(properties, place)
            if not value then break end
            if id == 0x08 then publish.response_topic = value end
            if id == 0x09 then publish.correlation = value end
        end
    end
    return publish
end

-- The elements of an array of blobs, or nil and the byte at which it ends to be one.
local function array_of(payload)
    local count, at = payload:match("^%*(%d+)\r\n()")
    if not count then return nil, 0 end
    local elements = {}
    for _ = 1, math.min(tonumber(count), ELEMENTS_MAX) do
        local len, from = payload:match("^%$(%d+)\r\n()", at)
        len = tonumber(len)
        if not len or len > #payload or payload:sub(from + len, from + len + 1) ~= "\r\n" then return nil, at - 1 end
        elements[#elements + 1] = payload:sub(from, from + len - 1)
        at = from + len + 2
    end
    return elements
end

local function from_hex(digits)
    if #digits % 2 == 1 or digits:find("%X") then return nil end
    return (digits:gsub("%x%x", function(pair) return string.char(tonumber(pair, 16)) end))
end

local function add_clock(tree, field, range, text)
    local item = tree:add(field, range, shown(text))
    local wall, counter, node = text:match("^(%d+):(%d+):(.*)$")
    if not wall or field ~= f.ts then return end
    -- As far as doubles count whole milliseconds.
    local millis = tonumber(wall)
    if millis < 2 ^ 52 then
        item:add(f.ts_wall, range, NSTime.new(math.floor(millis / 1000), (millis % 1000) * 1000000))
    end
    item:add(f.ts_counter, range, counter)
    item:add(f.ts_node, range, shown(node))
end

local function add_request(tree, range, payload)
    local elements, at = array_of(payload)
    if not elements or not elements[1] then
        tree:add_proto_expert_info(malformed, "No request, from byte " .. (at or 0) .. " of the payload on")
        return nil
    end
    local verb, key = elements[1]:upper(), elements[2]
    if verb == "KEYNOTIFY" and (elements[3] or ""):upper() == "STOP" then verb = "KEYNOTIFY STOP" end
    tree:add(f.verb, range, shown(verb))
    if key then tree:add(f.key, range, shown(key)) end
    if (verb == "SET" or verb == "VDEL") and elements[3] then
        tree:add(f.value_len, range, #elements[3])
    end
    if verb == "SET" then
        local place = 4
        while elements[place] do
            local word = elements[place]:upper()
            if word == "NX" or word == "NEX" then tree:add(f.condition, range, word) end
            if word == "PX" and elements[place + 1] then
                place = place + 1
                tree:add(f.px, range, shown(elements[place]))
            end
            place = place + 1
        end
    end
    return verb, key
end

-- What a reply means, which depends on what was asked.
local function verdict_of(payload, verb)
    local first = payload:sub(1, 1)
    if first == "-" and payload:sub(1, 4) ~= "-1\r\n" then
        local text = payload:sub(1, ERROR_MAX)
        text = text:match("^%-ERR (.*)$") or text:sub(2)
        local last = #text
        while last > 0 and (text:byte(last) == 13 or text:byte(last) == 10) do last = last - 1 end
        return "refused", text:sub(1, last)
    end
    if payload == "+OK\r\n" then
        if verb == "KEYNOTIFY" then return "registered" end
        if verb == "KEYNOTIFY STOP" then return "not registered any more" end
        return "done"
    end
    if payload == ":-1\r\n" or payload == "-1\r\n" then return "not applied" end
    if payload == "$-1\r\n" then return "absent" end
    if payload == ":1\r\n" then return "removed" end
    if payload == ":0\r\n" then
        return verb == "KEYNOTIFY STOP" and "not registered" or "nothing removed"
    end
    if payload:match("^%$%d+\r\n") then return "value" end
    if first == "*" then return "page" end
    return nil
end

local function add_notification(tree, range, publish)
    local client, key = publish.topic:sub(#NOTIFICATIONS + 1):match("^(%x+)/command/notify/(%x+)$")
    client, key = client and from_hex(client), key and from_hex(key)
    if client then tree:add(f.client, range, shown(client)) end
    if key then tree:add(f.key, range, shown(key)) end
    local elements, at = array_of(publish.payload)
    if not elements or elements[1] ~= "NOTIFY" then
        tree:add_proto_expert_info(malformed, "No notification, from byte " .. (at or 0) .. " of the payload on")
        return "notification"
    end
    tree:add(f.verb, range, "NOTIFY " .. shown(elements[2] or ""))
    if elements[4] then tree:add(f.value_len, range, #elements[4]) end
    return "notification " .. shown(elements[2] or "") .. " " .. shown(key or "")
end

local function add_publish(publish, range, pinfo, place, root)
    local me = pinfo.number .. "/" .. place
    local pair = publish.correlation and ((publish.response_topic or publish.topic) .. "\0" .. publish.correlation)
    local is_request = publish.topic == REQUEST
    local is_notification = publish.topic:sub(1, #NOTIFICATIONS) == NOTIFICATIONS
    local asked = request_of[me]
    if not is_request and not is_notification and not asked and pair then
        asked = requests[pair]
        if asked then
            request_of[me] = asked
            if not reply_of[asked.place] then reply_of[asked.place] = pinfo.number end
        end
    end
    -- Of what is neither, only what a store says of each reply tells it from others' messages.
    if not (is_request or is_notification or asked or publish.user["__stat"]) then return nil end
    local tree = root:add(statestore, range)
    local summary
    if is_request then
        tree:add(f.kind, range, "request")
        local verb, key = add_request(tree, range, publish.payload)
        summary = shown(verb or "?") .. " " .. shown(key or "")
        if pair and pairs_made < PAIRS_MAX and not requests[pair] then
            requests[pair] = { frame = pinfo.number, place = me, time = pinfo.rel_ts, verb = verb, key = key }
            pairs_made = pairs_made + 1
        end
        local reply = reply_of[me]
        if reply then tree:add(f.response_in, range, reply):set_generated() end
    elseif is_notification then
        tree:add(f.kind, range, "notification")
        summary = add_notification(tree, range, publish)
    else
        tree:add(f.kind, range, "reply")
        local verdict, text = verdict_of(publish.payload, asked and asked.verb)
        if verdict then
            tree:add(f.verdict, range, verdict)
            if text then tree:add(f.error, range, shown(text)) end
            if verdict == "value" then
                tree:add(f.value_len, range, math.min(tonumber(publish.payload:match("^%$(%d+)")), 2 ^ 32 - 1))
            end
        else
            tree:add_proto_expert_info(malformed, "No reply")
        end
        if asked then
            tree:add(f.verb, range, shown(asked.verb or "?")):set_generated()
            if asked.key then tree:add(f.key, range, shown(asked.key)):set_generated() end
            tree:add(f.request_in, range, asked.frame):set_generated()
            local passed = math.max(pinfo.rel_ts - asked.time, 0)
            local seconds = math.floor(passed)
            local nanos = math.floor((passed - seconds) * 1000000000 + 0.5)
            tree:add(f.time, range, NSTime.new(seconds, math.min(nanos, 999999999))):set_generated()
        end
        summary = (verdict or "reply") .. (asked and asked.verb and (" after " .. shown(asked.verb)) or "")
    end
    local user = publish.user
    if user["__ts"] then add_clock(tree, f.ts, range, user["__ts"]) end
    if user["__ft"] then add_clock(tree, f.ft, range, user["__ft"]) end
    if user["__srcId"] then tree:add(f.source, range, shown(user["__srcId"])) end
    if user["__protVer"] then tree:add(f.version, range, shown(user["__protVer"])) end
    if user["statestore-reason"] then tree:add(f.reason, range, shown(user["statestore-reason"])) end
    tree:append_text(", " .. summary)
    return summary
end

function statestore.dissector(_, pinfo, root)
    local summaries = {}
    for place, packet in ipairs({ packets() }) do
        local publish = publish_of(packet.range:bytes():raw())
        if publish then
            summaries[#summaries + 1] = add_publish(publish, packet.range, pinfo, place, root)
        end
    end
    if #summaries > 0 then
        -- What MQTT has said there would stay otherwise.
        pinfo.cols.info:clear_fence()
        pinfo.cols.info = table.concat(summaries, "; ")
    end
end

-- The packets of MQTT are asked for, so they are dissected also when nobody looks at the tree.
register_postdissector(statestore)
